"""The online service, its client, and the command line.

A room imports only rooms below it: `cli`, `commands`, `server`, `app`, `api`, then `selection` and
`client`, `sessions`, `pools` and `journal`, `encoder`, `state`, `observe`, `settings`, `errors`,
`wire`. The contracts in pyproject.toml hold the rooms to this order, and `make lint` checks them.
"""
