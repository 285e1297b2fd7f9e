"""The command line: `main` puts the commands together, one module or folder each.

Commands import torch only when they need it.
"""
