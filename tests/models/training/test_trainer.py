import csv
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, T5Config, T5EncoderModel

from turnwise.models import encoder as encoder_module
from turnwise.models.encoder import UtteranceEncoder, forward
from turnwise.models.errors import DataError, ModelError, TrainingError
from turnwise.models.roles import EncoderKind
from turnwise.models.training import trainer
from turnwise.models.training.config import TrainConfig
from turnwise.models.training.loop import Progress, warm_up_and_decay
from turnwise.models.training.trainer import (
    Learner,
    all_views,
    backward,
    plan_epoch,
    read_corpus,
    train,
)
from turnwise.models.training.views import collate

Folder = Callable[[EncoderKind], Path]
ALL_OBJECTIVES = {
    "ccl": 1.0,
    "c3l": 1.0,
    "running_query": 1.0,
    "reach": 1.0,
    "order": 1.0,
    "nli": 1.0,
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "dialogues.jsonl"
    lines = [
        {
            "id": f"d{n}",
            "utterances": [
                {"speaker": "AB"[t % 2], "text": f"words {n} of turn {t}"} for t in range(3 + n % 4)
            ],
        }
        for n in range(12)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


@pytest.fixture
def nli(tmp_path: Path) -> Path:
    path = tmp_path / "nli.jsonl"
    labels = ("entailment", "neutral", "contradiction")
    lines = [
        {"premise": f"p {n}", "hypothesis": f"h {n}", "label": labels[n % 3]} for n in range(9)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def config_of(
    base: Path,
    corpus: Path,
    nli: Path | None = None,
    *,
    kind: EncoderKind = EncoderKind.TRIPLE,
    **more: object,
) -> TrainConfig:
    raw = {
        "kind": kind,
        "base": str(base),
        "data": [{"path": str(corpus)}],
        "spaced": 0.5,
        "objectives": {"running_query": 1.0, "c3l": 1.0},
        "batch_views": 5,
        "precision": "float32",
        "optimiser": {"learning_rate": 1e-3},
    }
    if nli is not None:
        raw |= {"nli": {"paths": [str(nli)], "pairs": 4}}
    return TrainConfig.model_validate(raw | more)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "learner.safetensors")


def test_a_plain_encoder_becomes_a_triple_encoder(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path
) -> None:
    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE),
        corpus,
        aggregation={"name": "last_rows", "last_rows": 3},
    )
    encoder = UtteranceEncoder(train(config, tmp_path / "out", device="cpu"), device="cpu")
    assert encoder.kind is EncoderKind.TRIPLE
    assert encoder.aggregation.last_rows == 3


def test_a_curved_encoder_goes_on_as_a_triple_encoder(
    tiny_encoder_folder: Folder, corpus: Path
) -> None:
    curved = tiny_encoder_folder(EncoderKind.CURVED)
    learner = Learner(config_of(curved, corpus), "cpu")
    before = UtteranceEncoder(curved, device="cpu")
    table = before.model[0].auto_model.get_input_embeddings().weight
    after = learner.encoder[0].auto_model.get_input_embeddings().weight
    assert torch.equal(after[: len(table)], table)
    assert len(after) == len(table) + 2


@pytest.mark.parametrize("kind", [EncoderKind.CURVED, EncoderKind.CURVED_WITHOUT_SPEAKERS])
def test_ccl_trains_with_and_without_speakers(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path, kind: EncoderKind
) -> None:
    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE), corpus, kind=kind, objectives={"ccl": 1.0}
    )
    assert UtteranceEncoder(train(config, tmp_path / "out", device="cpu")).kind is kind


def test_training_lowers_the_loss(
    tiny_encoder_folder: Folder, corpus: Path, nli: Path, tmp_path: Path
) -> None:
    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE), corpus, nli, objectives=ALL_OBJECTIVES, epochs=15
    )
    seen: list[Progress] = []
    train(config, tmp_path / "out", report=seen.append, device="cpu")
    total = [sum(progress.losses.values()) for progress in seen]
    assert set(seen[0].losses) == {
        "ccl", "c3l", "running_query_2", "running_query_mean", "reach", "order", "nli",
    }  # fmt: skip
    assert np.mean(total[-4:]) < 0.9 * np.mean(total[:4])


def test_the_gradient_cache_gives_the_same_gradients(
    tiny_encoder_folder: Folder, corpus: Path
) -> None:
    gradients = []
    for cache in (False, True):
        config = config_of(tiny_encoder_folder(EncoderKind.TRIPLE), corpus, gradient_cache=cache)
        learner = Learner(config, "cpu")
        views = plan_epoch([read_corpus(config.data[0], Path)], config, 0)[0]
        batch = collate(views, config.kind)
        rng = np.random.default_rng(0)
        backward(learner, batch.texts, lambda v, x=learner, b=batch, r=rng: x(v, b, [], r))
        gradients.append({n: p.grad for n, p in learner.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-5), name


def test_each_text_of_a_step_is_encoded_once_a_role(
    tiny_encoder_folder: Folder, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_encoder_folder(EncoderKind.TRIPLE), corpus)
    views = next(all_views([read_corpus(config.data[0], Path)], config))
    wanted = set()
    for view in views:
        for utterance in view.utterances:
            mine = utterance.speaker == view.responder
            wanted |= {(position, mine, utterance.text) for position in ("[B1]", "[B2]")}
            if mine:
                wanted.add(("[AFTER]", mine, utterance.text))
    batch = collate(views, config.kind)
    encoded: list[int] = []

    def count(model: object, tokens: list[list[int]], dtype: torch.dtype) -> torch.Tensor:
        encoded.append(len(tokens))
        return forward(model, tokens, dtype)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder_module, "forward", count)
    learner = Learner(config, "cpu")
    rng = np.random.default_rng(0)
    backward(learner, batch.texts, lambda v: learner(v, batch, [], rng))
    assert sum(encoded) == len(wanted)


def test_a_diverged_run_stops(tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path) -> None:
    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE), corpus, optimiser={"learning_rate": 1e30}, epochs=5
    )
    with pytest.raises(TrainingError, match="diverged"):
        train(config, tmp_path / "out", device="cpu")


def test_the_base_is_kept_in_part(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path
) -> None:
    base = tiny_encoder_folder(EncoderKind.TRIPLE)
    config = config_of(base, corpus, keep_base=0.25, optimiser={"learning_rate": 0.02})
    folder = train(config, tmp_path / "out", device="cpu")
    before = UtteranceEncoder(base, device="cpu").model.state_dict()
    learned = weights(tmp_path / "out")
    for name, value in UtteranceEncoder(folder, device="cpu").model.state_dict().items():
        if value.is_floating_point():
            wanted = 0.25 * before[name] + 0.75 * learned[f"encoder.{name}"]
            assert torch.allclose(value, wanted, atol=2e-3), name


def test_a_resumed_run_ends_where_an_unbroken_one_does(
    tiny_encoder_folder: Folder,
    corpus: Path,
    nli: Path,
    check_resuming: Callable[[Callable[..., object]], None],
) -> None:
    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE),
        corpus,
        nli,
        objectives=ALL_OBJECTIVES,
        epochs=2,
        validation={"every": 2},
    )
    check_resuming(partial(train, config, device="cpu"))


def test_a_new_run_leaves_nothing_of_an_earlier_one_to_resume(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path
) -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    again = partial(
        train, config_of(tiny_encoder_folder(EncoderKind.SINGLE), corpus), tmp_path / "out"
    )
    again(device="cpu")
    with pytest.raises(KeyboardInterrupt):
        again(device="cpu", report=stop)
    steps: list[int] = []
    again(device="cpu", resume=True, report=lambda progress: steps.append(progress.step))
    assert steps[0] == 1


def test_a_run_on_other_data_or_with_other_values_takes_up_no_checkpoint(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path
) -> None:
    config = config_of(tiny_encoder_folder(EncoderKind.SINGLE), corpus)
    train(config, tmp_path / "out", device="cpu")
    other = config.model_copy(update={"batch_views": 4})
    with pytest.raises(TrainingError, match="another run, which differs in batch_views;"):
        train(other, tmp_path / "out", device="cpu", resume=True)
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join(lines[1:]))
    with pytest.raises(TrainingError, match="another run, which differs in items;"):
        train(config, tmp_path / "out", device="cpu", resume=True)


def test_weights_that_an_encoder_uses_twice_are_kept_once(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path
) -> None:
    plain, tied = tiny_encoder_folder(EncoderKind.SINGLE), tmp_path / "t5"
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(plain)
    shape = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2
    )
    T5EncoderModel(shape).save_pretrained(tied)
    tokenizer.save_pretrained(tied)
    rate = {"learning_rate": 0.02}
    config = config_of(tied, corpus, keep_base=0.25, optimiser=rate, validation={"every": 2})
    folder = train(config, tmp_path / "out", device="cpu")
    before = Learner(config, "cpu").encoder.state_dict()
    learned = {name.removeprefix("encoder."): w for name, w in weights(tmp_path / "out").items()}
    kept = UtteranceEncoder(folder, device="cpu").model.state_dict()
    assert len({*before} & {*learned}) == len(before) - 1
    for name in {*before} & {*learned}:
        wanted = 0.25 * before[name] + 0.75 * learned[name]
        assert torch.allclose(kept[name], wanted, atol=2e-3), name
    train(config, tmp_path / "out", device="cpu", resume=True)


def test_a_triple_encoder_becomes_no_other(tiny_encoder_folder: Folder, corpus: Path) -> None:
    base = tiny_encoder_folder(EncoderKind.TRIPLE)
    config = config_of(base, corpus, kind=EncoderKind.CURVED, objectives={"ccl": 1.0})
    with pytest.raises(ModelError, match=f"base '{base}' is a triple encoder"):
        Learner(config, "cpu")


def test_the_best_checkpoint_by_validation_is_kept(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = iter([3.0, 2.0, 5.0, 4.0])
    kept: list[int] = []

    def validate(_model: object) -> dict[str, float]:
        kept.append((tmp_path / "out" / "model").is_dir())
        return {"average_rank": next(ranks)}

    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE),
        corpus,
        validation={"every": 1},
        optimiser={"learning_rate": 0.02},
    )
    monkeypatch.setattr(trainer, "validator", lambda *_: validate)
    out = train(config, tmp_path / "out", device="cpu")
    best = UtteranceEncoder(out, device="cpu").model.state_dict()
    last = weights(tmp_path / "out")
    different = [
        name
        for name, value in best.items()
        if not torch.allclose(value, last[f"encoder.{name}"], atol=1e-3)
    ]
    assert kept == [0, 1, 1, 1]
    assert different


def test_curves_hold_every_step(
    tiny_encoder_folder: Folder, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_encoder_folder(EncoderKind.SINGLE), corpus)
    monkeypatch.setattr(trainer, "validator", lambda *_: lambda _: {"average_rank": 1.5})
    train(config, tmp_path / "out", device="cpu")
    with (tmp_path / "out" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = {int(row["step"]) for row in rows if row["name"] == "loss/c3l"}
    assert steps == set(range(1, len(steps) + 1))
    assert [row["value"] for row in rows if row["name"] == "validation/average_rank"] == ["1.5"]
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_epoch_is_the_same_for_the_same_seed_only(
    tiny_encoder_folder: Folder, corpus: Path
) -> None:
    base = tiny_encoder_folder(EncoderKind.SINGLE)
    plans = []
    for seed in (1, 1, 2):
        config = config_of(base, corpus, seed=seed)
        plans.append(plan_epoch([read_corpus(config.data[0], Path)], config, 0))
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_a_sampled_corpus_is_seen_whole_over_the_epochs(
    tiny_encoder_folder: Folder, corpus: Path
) -> None:
    config = config_of(
        tiny_encoder_folder(EncoderKind.SINGLE),
        corpus,
        epochs=6,
        batch_views=8,
        data=[{"path": str(corpus), "views": 16}],
    )
    views = read_corpus(config.data[0], Path)
    seen = Counter(view for batch in all_views([views], config) for view in batch)
    assert len(views) == 24
    assert all(seen[view] == 4 for view in views)


def test_dialogues_are_left_out(corpus: Path, tmp_path: Path, tiny_encoder_folder: Folder) -> None:
    leaks = tmp_path / "leaks.json"
    leaks.write_text(json.dumps({"exact": ["d0", "d1"], "near": ["d5"]}))
    data = [{"path": str(corpus), "leave_out": str(leaks)}]
    config = config_of(tiny_encoder_folder(EncoderKind.SINGLE), corpus, data=data)
    assert len(read_corpus(config.data[0], Path)) == 2 * 9


def test_a_corpus_without_an_answer_is_refused(tmp_path: Path, tiny_encoder_folder: Folder) -> None:
    lonely = tmp_path / "lonely.jsonl"
    lonely.write_text('{"id": "1", "utterances": [{"speaker": "A", "text": "anybody here"}]}')
    config = config_of(tiny_encoder_folder(EncoderKind.SINGLE), lonely)
    with pytest.raises(DataError, match=r"lonely\.jsonl"):
        read_corpus(config.data[0], Path)


def test_texts_that_the_model_cuts_are_named_once(
    tmp_path: Path, tiny_encoder_folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    long = tmp_path / "long.jsonl"
    longest = "a " * (128 - len(["[CLS]", "[B1]", "[E]", "[BEFORE]", "[SEP]"]))
    lines = [
        {"utterances": [{"speaker": "AB"[t % 2], "text": text} for t, text in enumerate(texts)]}
        for texts in (("b", longest), ("c", "d", longest + "e", longest + "f"))
    ]
    long.write_text("\n".join(json.dumps(line) for line in lines))
    config = config_of(tiny_encoder_folder(EncoderKind.SINGLE), long)
    train(config, tmp_path / "out", device="cpu")
    (warning,) = caplog.messages
    assert warning.startswith(f'{long}, dialogue "long-2", utterance 3: longer than the model')
    assert "2 utterances in all" in warning


@pytest.mark.parametrize("turns", [2, 5])
def test_a_single_dialogue_is_refused(
    tmp_path: Path, tiny_encoder_folder: Folder, turns: int
) -> None:
    single = tmp_path / "single.jsonl"
    said = [{"speaker": "AB"[t % 2], "text": f"turn {t}"} for t in range(turns)]
    single.write_text(json.dumps({"utterances": said}))
    config = config_of(tiny_encoder_folder(EncoderKind.SINGLE), single)
    with pytest.raises(DataError, match=r"single\.jsonl: no second dialogue"):
        train(config, tmp_path / "out", device="cpu")


def test_steps_of_one_view_can_be_learned_from(
    corpus: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    data = [{"path": str(corpus), "views": 1}]
    objectives = dict.fromkeys(("ccl", "c3l", "running_query", "reach"), 1.0)
    base = tiny_encoder_folder(EncoderKind.SINGLE)
    config = config_of(base, corpus, data=data, objectives=objectives, epochs=3)
    seen: list[Progress] = []
    train(config, tmp_path / "out", report=seen.append, device="cpu")
    assert len(seen) == 3


def test_the_learning_rate_warms_up_and_decays() -> None:
    factor = warm_up_and_decay(100, 0.1)
    values = [factor(step) for step in range(100)]
    assert max(values) == values[9] == pytest.approx(1)
    assert values[:10] == sorted(values[:10])
    assert values[9:] == sorted(values[9:], reverse=True)
    assert 0 < values[-1] < 0.02
