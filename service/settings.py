"""Every setting of the service, from `TURNWISE_*` variables, with its default and its reason."""

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableError

from turnwise.models import DEFAULT_MODEL
from turnwise.models.errors import TurnwiseError

Scope = Literal["select", "pools", "admin"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_PREFIX = "TURNWISE_"
_REDIS = re.compile(r"(rediss?|unix)://|rediss?\+sentinel://[^/]+/[^/?]+")
_OF_CLIENTS = {"TURNWISE_URL", "TURNWISE_KEY"}
"""Variables of the commands that talk to a running service: no settings of it."""


class ApiKey(BaseModel):
    """An API key: its name, which several may share, is the namespace of its sessions and pools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: frozenset[Scope] = frozenset({"select"})


class Limits(BaseSettings):
    """What a request may ask for; past each limit stands a problem document that names it."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, use_attribute_docstrings=True
    )

    max_body_bytes: PositiveInt = 1 << 20
    """Bytes of a request's body; uploads of candidates have their own limit."""
    max_upload_bytes: PositiveInt = 256 << 20
    """Bytes of an upload of candidates."""
    max_text_chars: PositiveInt = 2000
    """Characters of an utterance, a candidate or a goal; the encoder reads 256 word pieces."""
    max_metadata_bytes: PositiveInt = 4096
    """Bytes of one candidate's metadata as JSON."""
    max_turns: PositiveInt = 500
    """Posts of a session, or utterances of a context."""
    max_candidates: PositiveInt = 1000
    """Candidates given with a call to /rank."""
    max_goals: PositiveInt = 64
    """Goals of a call, and utterances to avoid."""
    max_top_k: PositiveInt = 100
    """Replies or orders that a request may ask for; a /rank without `top_k` gets all."""
    max_pool_size: PositiveInt = 2_000_000
    """Candidates of a pool."""


class Settings(Limits):
    """All settings. Values that would be unsafe together are refused at the start."""

    host: str = "127.0.0.1"
    """Address to bind to."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to bind to; 0 takes a free one."""
    allow_anonymous: bool = False
    """Bind to more than loopback although there are no API keys."""
    api_keys: tuple[ApiKey, ...] = ()
    """JSON: `[{"name", "sha256", "scopes"}]`; `turnwise key NAME` makes one."""

    redis_url: str | None = None
    """`redis://`, `rediss://`, `unix://`, `redis+sentinel://`; without one it starts its own."""
    redis_cluster: bool = False
    """The URL names a node of a Redis Cluster."""
    redis_timeout: Seconds = 2.0
    """Seconds that a command or a connection may take."""
    data_dir: Path = Path(".turnwise")
    """Folder of the private Redis's files, and of what is worked out from the model once."""

    model: str = str(DEFAULT_MODEL)
    """A sentence-transformers folder or hub name."""
    device: str | None = None
    """A torch device; without one a GPU where there is one, else the CPU."""
    pairwise: Path | None = None
    """A trained pairwise model, for pools with `"encoder": "pairwise"`."""
    reranker: Path | None = None
    """A trained IoI network, for requests with `"rerank": "ioi"`."""
    default_pool: Path | None = None
    """Candidates (JSONL) for the pool `default`, where there is none of that name yet."""

    session_ttl: int = Field(default=86_400, ge=1, le=1 << 31)
    """Seconds that a session lives after its last turn."""
    short_list: PositiveInt = 100
    """Candidates retrieved that MaxSim or a re-ranker puts in order."""
    exact_limit: PositiveInt = 50_000
    """Pool size up to which search is exact."""
    search_threads: PositiveInt = 1
    """Threads that search one pool side by side."""

    queue_limit: PositiveInt = 2048
    """Texts that may wait for the encoder ahead of bulk work."""
    queue_seconds: Seconds = 1.0
    """Seconds that a text may have to wait for the encoder; past that, requests are refused."""
    batch_tokens: PositiveInt = 4096
    """Tokens of a padded batch; on a CPU 256 at most."""
    vector_cache: PositiveInt = 50_000
    """Vectors of recent texts kept in memory (1.5 KB each with the default model)."""
    request_timeout: Seconds = 10.0
    """Seconds after which work on a turn, a ranking or a plan is dropped."""
    drain_timeout: Seconds = 20.0
    """Seconds that requests under way have to finish after SIGTERM."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""
    log_text: bool = False
    """Whether logs may hold what people said."""
    tracing: bool = False
    """OpenTelemetry traces; needs the extra `tracing`, configured by `OTEL_*`."""

    @property
    def loopback(self) -> bool:
        """Whether nobody but this machine reaches the host."""
        return self.host in {"127.0.0.1", "::1", "localhost"}

    @property
    def redis_folder(self) -> Path:
        """Where the private Redis keeps its files."""
        return self.data_dir / "redis"

    @field_validator("redis_url")
    @classmethod
    def _reachable(cls, url: str | None) -> str | None:
        if url and not _REDIS.match(url):
            raise ValueError(
                "begins with redis://, rediss:// or unix://, or is "
                "redis+sentinel://HOST:PORT,HOST:PORT/NAME"
            )
        return url

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if not (self.loopback or self.api_keys or self.allow_anonymous):
            raise ValueError(
                f"host {self.host} can be reached by others, and there are no API keys: set "
                "TURNWISE_API_KEYS, or TURNWISE_ALLOW_ANONYMOUS=true if you mean it"
            )
        if len({key.sha256 for key in self.api_keys}) < len(self.api_keys):
            raise ValueError("an API key stands there twice")
        if self.redis_cluster and "+sentinel:" in (self.redis_url or ""):
            raise ValueError("a Redis Cluster fails over without Sentinels: name one of its nodes")
        if self.redis_cluster and not (self.redis_url or "").startswith(("redis:", "rediss:")):
            raise ValueError(
                "TURNWISE_REDIS_CLUSTER: TURNWISE_REDIS_URL has to name one of the cluster's nodes "
                "by redis:// or rediss://"
            )
        return self


def local_url(host: str, port: int) -> str:
    """Return where this machine reaches what is bound to a host and a port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class SettingsError(TurnwiseError):
    """A setting is unknown, out of range, or unsafe beside another."""


def read_settings(**given: object) -> Settings:
    """Return the settings of the environment, some of them given here instead.

    Raises:
        SettingsError: Variables that are unknown or wrong, each by its name.
    """
    known = {_PREFIX + name.upper() for name in Settings.model_fields} | _OF_CLIENTS
    names = (name for name in os.environ if name.upper().startswith(_PREFIX))
    if unknown := [name for name in sorted(names) if name.upper() not in known]:
        raise SettingsError("; ".join(_unknown(name, known) for name in unknown))
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except UnreadableError as error:
        name = str(error).partition('"')[2].partition('"')[0]
        raise SettingsError(f"{_PREFIX}{name.upper()}: not valid JSON") from None
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)
        raise SettingsError("; ".join(map(_wrong, wrong))) from None


def _unknown(name: str, known: set[str]) -> str:
    # Without the prefix, which would make any two names look alike.
    names = [known_name.removeprefix(_PREFIX) for known_name in sorted(known)]
    close = get_close_matches(name.upper().removeprefix(_PREFIX), names, n=1)
    return f"{name} is not a setting" + "".join(f"; did you mean {_PREFIX}{n}?" for n in close)


def _wrong(error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return str(message)
    field, *path = map(str, error["loc"])
    return f"{'.'.join([_PREFIX + field.upper(), *path])}: {message}"
