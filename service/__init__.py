"""The command line, and later the online service."""
