"""Wiring: from settings to running components, the one place that knows them all.

`components` starts Redis, the encoders and the pools; `wiring` puts the use cases and the API on
top; `snapshots` runs the components alone, for the command line. The package imports everything
below it; only `server` and `commands` import it.
"""
