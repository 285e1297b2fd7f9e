"""The online service, its client, and the command line.

A room imports only rooms below it: `cli`, `app`, `api`, then `client` and `use_cases`, `selection`,
`sessions`, `pools` and `journal`, `encoder`, `redis`, `observe`, `settings`, `errors` and
`candidate_files`, `wire`. The contracts in pyproject.toml hold the rooms to this order, and `make
lint` checks them.
"""
