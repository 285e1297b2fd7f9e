"""The encoder queue: texts wait in lanes, the next batch runs, and recent vectors are cached.

- `cache` (`CachedEncoder`): the encoder as use cases see it.
- `queue` (`EncoderQueue`): admits texts, and runs two threads: one tokenizes, one runs batches.
- `batcher` (`Batcher`): the texts that wait, by priority, and the next batch of them.
- `model` (`Encoder`): what runs the batches; `remote` (`RemoteEncoder`) is one over HTTP.
- `runner` (`BatchRunner`): runs a batch on the model, and answers its requests.

The pairs of a cross-encoder wait in a lane of the same queue. Anything about the order and the cost
of encoding belongs here.
"""
