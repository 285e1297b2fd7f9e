"""The use cases: a turn, the rest of a session, ranking, planning, and the parts that they share.

One module for each use case (`turn`, `sessions`, `rank`, `plan`), and below them `select` (from a
pool), `rerank`, `pairwise`, `scores` (of given candidates) and `context`. A use case takes and
returns values of `wire` and knows neither HTTP nor Redis. The package imports `sessions`, `pools`,
`encoder`, `observe`, `wire`, `errors` and `models`.
"""
