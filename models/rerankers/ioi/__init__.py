"""IoI, the interaction-over-interaction network: its model, its network and its vocabulary."""
