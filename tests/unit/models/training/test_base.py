from types import SimpleNamespace

from transformers import BertConfig, BertModel

from turnwise.models.training.base import keep_layers


def test_the_layers_that_are_kept_are_spread_evenly() -> None:
    transformer = BertModel(
        BertConfig(
            vocab_size=8,
            hidden_size=4,
            num_attention_heads=1,
            intermediate_size=4,
            num_hidden_layers=6,
        )
    )
    before = [*transformer.encoder.layer]
    keep_layers([SimpleNamespace(auto_model=transformer)], 3)  # type: ignore[arg-type]
    assert [before.index(layer) for layer in transformer.encoder.layer] == [0, 2, 5]
