"""The online service, its client, and the command line."""
