"""The queue in front of the model: which texts wait, which batch runs next, which vectors are kept.

It may import `observe` and `models`.
"""
