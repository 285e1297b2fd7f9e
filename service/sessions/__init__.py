"""Sessions in Redis: reading one, and committing a change of one.

- `store`: reads and writes sessions. `feedback`: reads and writes their feedback. The Lua scripts
  of both are in `scripts/`.
- `turns`: turns, and how they join into utterances. `responder`: which speaker says the candidates.
- `update`: a value, from a session and its next turns to the texts to encode and the change to
  commit.
- `writers`: lets the writers of a session on this replica go one after another.
"""
