"""Selection: from the context of a conversation to the best candidates of a pool.

`context` gives the rows and vectors of a context, `pipeline` selects from a pool, `scores` scores
given candidates, `short_list` re-ranks, `confidence` says how sure the first candidate is.
`pairwise` serves pools of the pairwise model, and `deadline` ends slow work. The package imports
`sessions`, `pools`, `encoder`, `threads`, `observe`, `wire`, `errors` and `models`.
"""
