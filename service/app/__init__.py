"""Wiring: from settings to running parts. This is the one place that knows every part.

`parts` starts Redis, the encoders and the pools; `wiring` puts the use cases and the API on top;
`snapshots` runs the parts alone, for the command line. The package imports everything below it;
only `server` and `commands` import it.
"""
