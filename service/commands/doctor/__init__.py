"""`turnwise doctor`: examines the settings, the model, Redis, the pools and the port."""
