"""`turnwise pool`: lists, edits, loads, encodes, saves, restores and moves pools of candidates.

- `candidates`, `loading`, `converting`, `edits`, `snapshots`, `catalogues`: the commands. They load
  nothing that `--help` does not need.
- `options`: the options that they share.
- `candidate_file`: a candidate as a file that a person edits.
- `changes`: what loading a file would change.
- `transfer`, `bulk`: the work of `snapshots` and `catalogues`, with a model and a Redis.
"""

import typer

from turnwise.service.cli.pool.candidates import edit, list_candidates, show
from turnwise.service.cli.pool.catalogues import encode, import_
from turnwise.service.cli.pool.converting import convert
from turnwise.service.cli.pool.edits import alias, learn, remove
from turnwise.service.cli.pool.loading import load
from turnwise.service.cli.pool.snapshots import move, restore, snapshot

pool = typer.Typer(
    help="List, edit, load, encode, save, restore and move pools of candidates.",
    no_args_is_help=True,
)
pool.command("list")(list_candidates)
pool.command("show")(show)
pool.command("edit")(edit)
pool.command("load")(load)
pool.command("convert")(convert)
pool.command("learn")(learn)
pool.command("remove")(remove)
pool.command("alias")(alias)
pool.command("snapshot")(snapshot)
pool.command("restore")(restore)
pool.command("encode")(encode)
pool.command("import")(import_)
pool.command("move")(move)
