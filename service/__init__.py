"""The online service, its client, and the command line.

The rooms are `cli`, the commands; `app`, the wiring; `api`, HTTP; `client`, the Python client;
`use_cases`, what a request or a command does; `selection`, `sessions`, `pools` and `journal`, the
parts that they use; `encoder` and `redis`; `observe`, metrics, logs and traces; `candidate_files`,
files of candidates; `wire`, the values of requests and answers; and `console`, a web page.

Outside of the rooms, `settings` reads the variables, `errors` has the errors of requests, and
`current_request` tells any code which request it works for. `threads` and `urls` are small tools.
`redaction` calls your function that redacts texts, and `fallback` another chat service. `mcp` has
the tools of `turnwise mcp`.

A room imports only rooms below it: `cli`, `app`, `api`, then `client` and `use_cases`, `selection`,
`sessions`, `pools` and `journal`, `encoder`, `redis`, `observe`, `settings`, `errors` and
`candidate_files`, `wire`. The contracts in pyproject.toml hold the rooms to this order, and `make
lint` checks them.
"""
