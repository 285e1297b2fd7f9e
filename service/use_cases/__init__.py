"""The use cases: what a request or a command does, without HTTP and without Redis.

`turn` adds a turn and selects candidates, `sessions` does everything else with a session, `rank`
orders given candidates, `plan` orders goals, `pools` reads and changes pools, and `candidates`
lists or changes single candidates. A use case takes and returns values of `wire`. The package
imports `selection` and every room below it.
"""
