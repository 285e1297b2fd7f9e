"""The use cases: what a request or a command does, without HTTP and without Redis.

- `turn` adds a turn and selects candidates, with `retries` and `turn_records`. `sessions` does
  everything else with a session. `chat` completes the chats of OpenAI's clients by turns.
- `rank` orders candidates, with `judged`. `rerank` orders documents, and `plan` orders goals.
- `pools` reads and changes pools, `search` searches one, and `candidates` lists or changes single
  candidates, with `upload_checks`. `learning` adds to their examples what feedback teaches.

A use case takes and returns values of `wire`.
"""
