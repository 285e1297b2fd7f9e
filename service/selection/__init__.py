"""Selection: from the context of a conversation to the best candidates of a pool.

- `request`: what is asked for. `context`: the rows and vectors of a context.
- `pipeline`: selects from a pool, in the steps `search`, `retrieval`, `confidence` and `reranking`.
- `answers`: wordings of one answer. `repeats`: what the responder has said already.
- `scores`: scores given candidates and goals. `pairwise`: serves pools of the pairwise model.
- `idle`: encodes ahead of the next turn. `deadline`: ends slow work.
"""
