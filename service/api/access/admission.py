"""Limits what a namespace asks of this replica: requests per second, and uploads at once (429)."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from turnwise.models.texts import write_count
from turnwise.service.errors import RequestRateExceeded, TooManyUploads
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Limits


class Admission:
    """Counts the requests and uploads of each namespace, and rejects those beyond the limits."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._second = 0
        self._requests = Counter[str]()
        self._uploads = Counter[str]()

    def count_request(self, namespace: str) -> None:
        """Count a request.

        Raises:
            RequestRateExceeded: The namespace has sent as many in this second as it may.
        """
        if (second := int(monotonic())) != self._second:
            self._second = second
            self._requests.clear()
        most = self._limits.max_request_rate
        if most is not None and self._requests[namespace] >= most:
            self._metrics.rejected_requests.labels("request_rate").inc()
            raise RequestRateExceeded(
                f"namespace '{namespace}' may send {write_count(most, 'request')} a second to a "
                "replica"
            )
        self._requests[namespace] += 1

    @contextmanager
    def count_upload(self, namespace: str) -> Iterator[None]:
        """Count an upload while it runs.

        Raises:
            TooManyUploads: As many run as the namespace may have at once.
        """
        most = self._limits.max_uploads
        if self._uploads[namespace] >= most:
            self._metrics.rejected_requests.labels("uploads").inc()
            raise TooManyUploads(
                f"namespace '{namespace}' may have {write_count(most, 'upload')} at once on a "
                "replica"
            )
        self._uploads[namespace] += 1
        try:
            yield
        finally:
            self._uploads[namespace] -= 1
