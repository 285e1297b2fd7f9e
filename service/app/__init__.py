"""Wiring: from settings to a running process, in the one place that knows all parts.

`components` starts Redis, the encoders and the pools. `wiring` puts the use cases and the API on
top, `encoder_only` wires a service without Redis, and `server` runs either. The package imports
everything below it, and only `cli` imports it.
"""
