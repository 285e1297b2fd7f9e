"""Wiring: from settings to running components, in the one place that knows them all.

- `components` starts Redis, the encoders and the pools.
- `wiring` puts the use cases and the API on top; `encoder_only` wires a service without Redis.
- `snapshots` and `catalogues` run the components alone, for the command line. `part_writer` encodes
  the parts of a catalogue, and `on_ray` starts such writers on a Ray cluster.

The package imports everything below it; only `server` and `commands` import it.
"""
