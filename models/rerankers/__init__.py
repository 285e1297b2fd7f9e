"""The models that re-rank a short list: IoI networks and cross-encoders.

`ioi` scores context and candidate word by word, and is kept in a folder that `network_folder.py`
describes. `cross_encoder` is a classifier of pairs in a folder of sentence-transformers.
"""
