"""Every setting of the service, read from `TURNWISE_*` variables, with its default."""

import hashlib
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import (
    Field,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableError

from turnwise.models import DEFAULT_MODEL
from turnwise.models.errors import TurnwiseError, message_of
from turnwise.service.urls import show_url
from turnwise.service.wire.fields import (
    MAX_CANDIDATE_BODY_BYTES,
    MAX_CANDIDATES,
    MAX_GOALS,
    MAX_MESSAGE_CHARS,
    MAX_TEXT_CHARS,
    MAX_TOP_K,
)
from turnwise.service.wire.keys import ApiKey

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_PREFIX = "TURNWISE_"
_HOST_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_REDIS = re.compile(r"(rediss?|unix)://|rediss?\+sentinel://[^/]+/[^/?]+")
_COMPLETIONS = "/chat/completions"
_OF_CLIENTS = {"TURNWISE_URL", "TURNWISE_KEY"}
"""Variables of the commands that talk to a running service."""
_REMOVED = {
    "TURNWISE_BATCH_TOKENS",
    "TURNWISE_MAX_BODY_BYTES",
    "TURNWISE_MAX_CANDIDATES",
    "TURNWISE_MAX_GOALS",
    "TURNWISE_MAX_METADATA_BYTES",
    "TURNWISE_MAX_TEXT_CHARS",
    "TURNWISE_MAX_TOP_K",
    "TURNWISE_QUEUE_LIMIT",
    "TURNWISE_QUEUE_SECONDS",
    "TURNWISE_SHORT_LIST",
    "TURNWISE_VECTOR_CACHE",
}
"""Settings that became constants: this release ignores them, the next one rejects them."""


class Limits(BaseSettings):
    """Limits of requests, sessions, pools and namespaces. The first ones are constants.

    `GET /version` reports those in force. A request that exceeds one gets a problem that names it.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, use_attribute_docstrings=True
    )

    max_body_bytes: ClassVar[int] = 1 << 20
    """Bytes of a request's body; uploads of candidates have their own limit."""
    max_text_chars: ClassVar[int] = MAX_TEXT_CHARS
    """Characters of a candidate or a goal; the encoder reads 256 word pieces. `/v1/rerank` cuts
    longer texts."""
    max_message_chars: ClassVar[int] = MAX_MESSAGE_CHARS
    """Characters of what somebody says in a turn, a context or a search; the encoder reads its
    beginning and its end, 256 word pieces in all. `/v1/chat/completions` cuts longer messages."""
    max_metadata_bytes: ClassVar[int] = 4096
    """Bytes of one candidate's metadata as JSON."""
    max_candidate_body_bytes: ClassVar[int] = MAX_CANDIDATE_BODY_BYTES
    """Bytes of one candidate's `body`."""
    max_candidates: ClassVar[int] = MAX_CANDIDATES
    """Candidates of a call to /rank, documents of /v1/rerank, or texts of /v1/embeddings."""
    max_goals: ClassVar[int] = MAX_GOALS
    """Goals of a call to /rank, or its utterances to avoid; /plan takes 16 goals."""
    max_top_k: ClassVar[int] = MAX_TOP_K
    """Candidates or orders that a request may ask for; a /rank without `top_k` gets all."""
    queue_limit: ClassVar[int] = 2048
    """Texts that may wait for the encoder; those of the bulk lane do not count."""

    max_upload_bytes: PositiveInt = 256 << 20
    """Bytes of an upload of candidates."""
    max_turns: PositiveInt = 500
    """Turns of a session, or utterances of a context."""
    max_pool_size: PositiveInt = 2_000_000
    """Candidates of a pool in memory."""

    max_request_rate: PositiveInt | None = None
    """Requests that a namespace may send to a replica in a second; by default any number."""
    max_uploads: PositiveInt = 32
    """Uploads that a namespace may have at once on a replica."""
    max_sessions: PositiveInt | None = None
    """Sessions of a namespace; by default any number. With it, a turn sends one more command."""
    max_pools: PositiveInt | None = None
    """Pools of a namespace; by default any number."""
    max_aliases: PositiveInt = 1000
    """Aliases of a namespace."""
    max_pools_bytes: PositiveInt | None = None
    """Bytes of a namespace's candidates in memory, vectors included; by default any number."""


def describe_excess(count: int, most: int, unit: str) -> str:
    """Return the message for something that exceeds a limit."""
    return f"{count} {unit} are more than the limit of {most}"


class Settings(Limits):
    """All settings. The service does not start if their values are unsafe together."""

    host: str = "127.0.0.1"
    """Address to bind to."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to bind to; 0 takes a free one."""
    allow_anonymous: bool = False
    """Whether the service may bind to more than loopback without API keys."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names, separated by commas, that requests may have in `Host`, besides `localhost`."""
    api_keys: tuple[ApiKey, ...] = ()
    """JSON: `[{"name", "sha256", "scopes", "expires"}]`; `turnwise key NAME` makes one."""
    api_keys_file: Path | None = None
    """File of more keys, as JSON like `TURNWISE_API_KEYS`; read again when it changes."""

    redis_url: str | None = Field(default=None, repr=False)
    """`redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `rediss+sentinel://`; by default a
    private Redis."""
    redis_cluster: bool = False
    """Whether the URL names a node of a Redis Cluster."""
    redis_timeout: Seconds = 2.0
    """Seconds that a command or a connection may take."""
    store_url: Annotated[str, Field(pattern=r"^(milvuss?|qdrants?)://[^/]+$")] | None = Field(
        default=None, repr=False
    )
    """Candidate store for pools with `"store"`: `milvus://host:port`, or `qdrant://host:port`,
    which is experimental; with TLS `milvuss://` or `qdrants://`. By default all pools are in the
    memory of each replica."""
    data_dir: Path = Path(".turnwise")
    """Folder of the private Redis's files, exported models, trained indexes and names of pools."""

    model: str = str(DEFAULT_MODEL)
    """A sentence-transformers folder or hub name."""
    encoder_url: str | None = Field(default=None, repr=False)
    """An endpoint `/v1/embeddings` that runs the model; by default the service runs it."""
    encoder_key: SecretStr | None = None
    """API key of that endpoint."""
    device: str | None = None
    """`cpu`, or a device of torch (extra `encoder`); by default a GPU if torch finds one."""
    pairwise: Path | None = None
    """Folder of a trained pairwise model, for pools with `"encoder": "pairwise"`."""
    reranker: Path | None = None
    """Folder of a trained IoI network, for requests with `"rerank": "ioi"`, or of a cross-encoder,
    for `"cross_encoder"`; by default that is the model's own re-ranker, if it has one."""
    own_reranker: bool = True
    """Whether the model's own re-ranker is loaded, if it has one: turns with `"rerank": "auto"` use
    it where the first candidate is not sure."""
    fallback_url: str | None = None
    """A service with OpenAI's chat API, such as `https://host/v1`. It answers chat completions
    where the pool has no reply; by default nobody does."""
    fallback_key: SecretStr | None = None
    """API key of that service."""
    fallback_model: str | None = None
    """The model that it is asked for."""
    fallback_timeout: Seconds = 20.0
    """Seconds until its answer is complete, or until the next event of a stream."""
    default_pool: Path | None = None
    """File of candidates for the pool `default`, loaded if there is no such pool yet."""

    journal: Path | None = None
    """Folder of the journal: what was said, offered and chosen. By default there is none."""
    redact: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None
    """Function through which texts pass before the journal keeps, a candidate learns or the
    fallback service gets them: `package.module:function`."""

    session_ttl: int = Field(default=86_400, ge=1, le=1 << 31)
    """Seconds that a session lives after its last change."""
    exact_limit: PositiveInt = 50_000
    """Pool size up to which search is exact."""
    search_threads: PositiveInt = 1
    """Threads that search one pool in parallel."""

    request_timeout: Seconds = 10.0
    """Seconds after which the service drops work on a turn, a ranking, a plan or a search."""
    drain_timeout: Seconds = 20.0
    """Seconds that running requests have to finish after SIGTERM."""

    pages: bool = True
    """Whether to serve the console, `/docs` and `/openapi.json`."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged; the audit log is complete at any level."""
    log_text: bool = False
    """Whether logs may hold the texts of users."""
    tracing: bool = False
    """Whether to send OpenTelemetry traces, configured by `OTEL_*`."""

    @property
    def limits(self) -> dict[str, float]:
        """Every limit in force, by its name."""
        names = (*Limits.__annotations__, "session_ttl", "request_timeout")
        limits = {name: getattr(self, name) for name in names}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the host."""
        return self.host in {"127.0.0.1", "::1", "localhost"}

    @property
    def keyed(self) -> bool:
        """Whether callers need an API key."""
        return bool(self.api_keys or self.api_keys_file)

    @property
    def host_names(self) -> frozenset[str]:
        """The names that requests may have in `Host`; empty if the service accepts any."""
        if self.allowed_hosts or (self.loopback and not self.keyed):
            return frozenset({"localhost", *self.allowed_hosts})
        return frozenset()

    @property
    def redis_folder(self) -> Path:
        """Where the private Redis keeps its files."""
        return self.data_dir / "redis"

    @property
    def redis_place(self) -> str:
        """Where Redis is, without its password."""
        if self.redis_url is None:
            return f"private Redis in {self.redis_folder.absolute()}"
        return f"Redis at {show_url(self.redis_url)}"

    @property
    def redis_digest(self) -> str:
        """A digest of where Redis is, which does not depend on its password."""
        parts = urlsplit(self.redis_url or f"unix://{self.redis_folder.absolute()}")
        hosts = parts.netloc.rpartition("@")[2]
        place = [hosts, parts.path, *parse_qs(parts.query).get("db", ())]
        return hashlib.sha256("\0".join(place).encode()).hexdigest()[:16]

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_host_names(cls, names: object) -> object:
        if isinstance(names, str):
            names = tuple(name.strip().lower() for name in names.split(",") if name.strip())
            if wrong := [name for name in names if not _HOST_NAME.fullmatch(name)]:
                raise ValueError(f"'{wrong[0]}' is not the name of a host, without a port")
        return names

    @field_validator("encoder_url")
    @classmethod
    def _complete_encoder_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        _check_endpoint(url, "TURNWISE_ENCODER_KEY")
        return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1/embeddings"

    @field_validator("fallback_url")
    @classmethod
    def _complete_fallback_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        _check_endpoint(url, "TURNWISE_FALLBACK_KEY")
        url = url.rstrip("/")
        if not urlsplit(url).path:
            url += "/v1"
        return url if url.endswith(_COMPLETIONS) else url + _COMPLETIONS

    @field_validator("encoder_key", "fallback_key")
    @classmethod
    def _check_ascii(cls, key: SecretStr | None) -> SecretStr | None:
        if key and not key.get_secret_value().isascii():
            raise ValueError("must be ASCII")
        return key

    @field_validator("store_url")
    @classmethod
    def _check_store_url(cls, url: str | None) -> str | None:
        if url and not _port_is_valid(urlsplit(url)):
            raise ValueError("must end with a host, or a host and a port")
        return url

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, url: str | None) -> str | None:
        if url and not _REDIS.match(url):
            raise ValueError(
                "must begin with redis://, rediss:// or unix://, or be "
                "redis+sentinel://HOST:PORT,HOST:PORT/NAME"
            )
        return url

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not (self.loopback or self.keyed or self.allow_anonymous):
            raise ValueError(
                f"other machines can reach host {self.host}, and there are no API keys: set "
                "TURNWISE_API_KEYS or TURNWISE_API_KEYS_FILE, or TURNWISE_ALLOW_ANONYMOUS=true to "
                "serve without keys"
            )
        if len({key.sha256 for key in self.api_keys}) < len(self.api_keys):
            raise ValueError("TURNWISE_API_KEYS lists a key twice")
        if self.fallback_url and not self.fallback_model:
            raise ValueError("TURNWISE_FALLBACK_URL needs TURNWISE_FALLBACK_MODEL")
        if self.redis_cluster and "+sentinel:" in (self.redis_url or ""):
            raise ValueError(
                "TURNWISE_REDIS_CLUSTER: a Redis Cluster has no Sentinels; name one of its nodes"
            )
        if self.redis_cluster and not (self.redis_url or "").startswith(("redis:", "rediss:")):
            raise ValueError(
                "TURNWISE_REDIS_CLUSTER: TURNWISE_REDIS_URL must name one of the cluster's nodes "
                "by redis:// or rediss://"
            )
        return self


def _check_endpoint(url: str, key: str) -> None:
    """Check the URL of an endpoint; `key` names the setting of its API key.

    Raises:
        ValueError: It is not such a URL, or holds a password.
    """
    parts = urlsplit(url)
    valid = parts.scheme in {"http", "https"} and parts.hostname and not parts.username
    if not (valid and _port_is_valid(parts)):
        raise ValueError(
            "must be http://HOST:PORT or https://HOST:PORT, with or without a path; put a "
            f"key into {key}"
        )


def _port_is_valid(parts: SplitResult) -> bool:
    """Return whether the port of a URL is a valid number, or left out."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def local_url(host: str, port: int) -> str:
    """Return the URL by which this machine reaches a service bound to a host and a port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class SettingsError(TurnwiseError):
    """A setting is unknown, out of range, or unsafe together with another."""


def read_settings(**given: object) -> Settings:
    """Return the settings of the environment; an argument overrides its variable.

    Raises:
        SettingsError: A variable is unknown or has a wrong value; the message names each.
    """
    known = {_PREFIX + name.upper() for name in Settings.model_fields} | _OF_CLIENTS
    unknown = [name for name in _list_variables() if name.upper() not in known | _REMOVED]
    if unknown:
        raise SettingsError("; ".join(_describe_unknown(name, known) for name in unknown))
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except UnreadableError as error:
        _, name, *_ = str(error).split('"')  # it quotes the name of the field
        raise SettingsError(f"{_PREFIX}{name.upper()}: not valid JSON") from None
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)
        raise SettingsError("; ".join(map(_describe_error, wrong))) from None


def ignored_variables() -> list[str]:
    """Return the variables that are set although they are no longer settings."""
    return [name for name in _list_variables() if name.upper() in _REMOVED]


def _list_variables() -> list[str]:
    return sorted(name for name in os.environ if name.upper().startswith(_PREFIX))


def _describe_unknown(name: str, known: set[str]) -> str:
    # The common prefix would make any two names look alike.
    names = [known_name.removeprefix(_PREFIX) for known_name in sorted(known)]
    close = get_close_matches(name.upper().removeprefix(_PREFIX), names, n=1)
    advice = f"; did you mean {_PREFIX}{close[0]}?" if close else ""
    return f"{name} is not a setting{advice}"


def _describe_error(error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    message = message_of(error)
    if not error["loc"]:
        return message
    field, *path = map(str, error["loc"])
    return f"{'.'.join([_PREFIX + field.upper(), *path])}: {message}"
