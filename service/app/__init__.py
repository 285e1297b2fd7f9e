"""Wiring: from settings to a running process, in the one place that knows all parts.

`loading` loads the models. `components` starts Redis, the encoders and the pools. `wiring` puts the
use cases and the API on top, `encoder_only` wires a service without Redis, `server` runs either.
"""

# Before FastAPI: the module keeps OTEL_PROPAGATORS from OpenTelemetry, which FastAPI imports.
import turnwise.service.observe.tracing  # noqa: F401
