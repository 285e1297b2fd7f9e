"""Opens the candidate store that a URL names."""

from urllib.parse import urlsplit

from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.stores.store import CandidateStore
from turnwise.service.settings import SettingsError


def connect_store(url: str, metrics: Metrics) -> CandidateStore:
    """Return the candidate store of a URL, which connects when it is first used.

    Args:
        url: `milvus://` or `qdrant://`, with TLS `milvuss://` or `qdrants://`. Its user and
            password are those of the store; an API key stands as the password.
        metrics: Gets the seconds of each call.

    Raises:
        SettingsError: The package of the store is not installed.
    """
    parts = urlsplit(url)
    engine = "milvus" if parts.scheme.startswith("milvus") else "qdrant"
    try:
        if engine == "milvus":
            from turnwise.service.pools.stores.milvus import Milvus  # noqa: PLC0415 - an extra

            return Milvus(parts, metrics)
        from turnwise.service.pools.stores.qdrant import Qdrant  # noqa: PLC0415 - an extra

        return Qdrant.at(parts, metrics)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"TURNWISE_STORE_URL names {engine}, but the package '{error.name}' is missing: "
            f"pip install 'turnwise[{engine}]'"
        ) from None
