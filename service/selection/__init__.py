"""The use cases: a turn, the rest of a session, ranking, planning, and the parts that they share.

One module for each use case (`turn`, `sessions`, `rank`, `plan`), and below them `select` (from a
pool), `candidate_scores` (of a ranking), `rerank`, `pairwise`, `confidence`, `context`,
`one_by_one` (slow work) and `deadline`. A use case takes and returns values of `wire` and knows
neither HTTP nor Redis. The package imports `sessions`, `pools`, `journal`, `encoder`, `observe`,
`wire`, `errors` and `models`.
"""
