"""The command line: `main` puts the commands together, one module or folder each.

`options`, `connected`, `pages` and `progress` are what several commands share: their options, a
client of a running service, reading a listing, and bars. `terminal` holds the dialogue of `chat`.

Commands import torch only when they need it.
"""
