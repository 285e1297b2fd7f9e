"""Options that the commands on pools share: how they are parsed, checked and read."""

from typing import TYPE_CHECKING, Annotated, NamedTuple, cast, get_args

import typer

if TYPE_CHECKING:
    from turnwise.service.candidate_files import Columns
    from turnwise.service.settings import Settings
    from turnwise.service.wire.fields import StoreName


def check_name(value: str | None) -> str | None:
    """Return a valid name, by the rules of the API."""
    from pydantic import TypeAdapter, ValidationError

    from turnwise.service.wire.fields import Name
    from turnwise.service.wire.problems import explain_error

    if value is None:
        return None
    try:
        return TypeAdapter[str](Name).validate_python(value)
    except ValidationError as error:
        why = explain_error(error.errors()[0])
        raise typer.BadParameter(f"'{value}' is not a name: {why}") from None


PoolName = Annotated[str, typer.Argument(help="Name of the pool.", callback=check_name)]
Namespace = Annotated[
    str, typer.Option(help="Namespace of the pool: the name of the API key.", callback=check_name)
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        help="URL of the Redis that holds the pools.", show_default="TURNWISE_REDIS_URL, or private"
    ),
]


TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text",
        help="Column, or field, of the texts.",
        show_default="text, answer, response, reply or content",
    ),
]
ExamplesColumn = Annotated[
    str | None,
    typer.Option(
        "--examples",
        help="Column of the utterances after which a text fits.",
        show_default="examples, example, questions and question",
    ),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="Column of the ids.", show_default="id, or the text's")
]
GroupColumn = Annotated[
    str | None,
    typer.Option(
        "--group", help="Column of the groups; '' for none.", show_default="group or intent"
    ),
]
BodyColumn = Annotated[
    str | None, typer.Option("--body", help="Column of the bodies.", show_default="body")
]
MetadataColumns = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        help="Columns of metadata, with commas between them; '' for none.",
        show_default="all others",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of the file, such as cp1252.",
        show_default="UTF-8, or what its byte order mark says",
    ),
]


def read_columns(
    *,
    text: TextColumn = None,
    examples: ExamplesColumn = None,
    id: IdColumn = None,
    group: GroupColumn = None,
    body: BodyColumn = None,
    metadata: MetadataColumns = None,
) -> "Columns":
    """Return the columns of candidates that these options name."""
    from turnwise.service.candidate_files import Columns, split_names

    return Columns(text, examples, id, group, body, split_names(metadata))


def parse_store(name: str, option: str, *without: str) -> "StoreName":
    """Return the store that an option names, which must not be one of `without`."""
    from turnwise.service.wire.fields import StoreName

    stores = [store for store in get_args(StoreName) if store not in without]
    if name not in stores:
        raise typer.BadParameter(f"'{name}' is none of {', '.join(stores)}", param_hint=option)
    return cast("StoreName", name)


class Shard(NamedTuple):
    """The share of the work that one of several processes does."""

    number: int
    """Its number; the first is 1."""
    total: int
    """Number of processes that share the work."""


def parse_shard(text: str) -> Shard:
    """Return the shard that `I/N` names."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise typer.BadParameter(f"'{text}' is not I/N, such as 1/8", param_hint="--shard")
    return Shard(int(number), int(of))


def read_settings_of(redis_url: str | None, namespace: str | None = None) -> "Settings":
    """Return the settings, and print which Redis and namespace the command works on."""
    from turnwise.service.settings import read_settings

    settings = read_settings(redis_url=redis_url) if redis_url else read_settings()
    where = f"{settings.redis_place}, namespace {namespace}" if namespace else settings.redis_place
    typer.echo(where, err=True)
    return settings
