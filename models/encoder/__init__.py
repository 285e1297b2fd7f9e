"""The sentence encoder E: texts in roles to unit vectors.

`torch` runs any sentence-transformers folder, `onnx` the graph of a folder without torch, and
`export` writes that graph. `heads` are small networks that compute the roles of a text from one
vector: `head_arrays` in numpy, to serve them, and `heads` in torch, to train them. `eight_bits`
trains a model for products of 8 bits, and `eight_bits_graph` writes them into its graph.
"""
