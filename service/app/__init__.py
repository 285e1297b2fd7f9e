"""Wiring: settings in, a running replica out.

The one place that knows every part. It may import everything below it; only `server` and `commands`
import it.
"""
