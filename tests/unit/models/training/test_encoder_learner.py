import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, T5Config, T5EncoderModel

from tests.fixtures.encoders import DIMENSION
from tests.unit.models.conftest import Folder, in_8_bits
from tests.unit.models.training.conftest import Trained, both_sides, train_once, write_dialogues
from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder import torch as encoder_module
from turnwise.models.encoder.head_arrays import HEADS
from turnwise.models.encoder.torch import UtteranceEncoder, forward, transformer_of
from turnwise.models.errors import DataError, ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText
from turnwise.models.training import losses
from turnwise.models.training.config import Config, EncoderConfig
from turnwise.models.training.learners.encoder import EncoderLearner
from turnwise.models.training.windows import Window, collate, crop


def make_learner(config: EncoderConfig, **changes: object) -> EncoderLearner:
    return EncoderLearner(changed(config, **changes), Path)


def changed(config: EncoderConfig, **changes: object) -> EncoderConfig:
    return EncoderConfig.model_validate(config.model_dump() | changes)


def without_nli(config: EncoderConfig) -> EncoderConfig:
    objectives = config.objectives.model_dump() | {"nli": 0.0}
    return changed(config, nli=None, objectives=objectives)


@pytest.mark.train
def test_training_lowers_the_loss(trained_encoder: Trained) -> None:
    seen = trained_encoder.seen
    total = [sum(progress.losses.values()) for progress in seen]
    assert set(seen[0].losses) == {
        "ccl",
        "c3l",
        "running_query_2",
        "running_query_mean",
        "reach",
        "order",
        "nli",
    }
    assert np.mean(total[-4:]) < 0.9 * np.mean(total[:4])


@pytest.mark.train
def test_the_base_is_kept_in_part(trained_encoder: Trained) -> None:
    assert isinstance(trained_encoder.config, EncoderConfig)
    before = make_learner(trained_encoder.config).encoder.state_dict()
    encoder = UtteranceEncoder(trained_encoder.out / "model", device="cpu")
    assert (encoder.kind, encoder.aggregation.last_rows) == (EncoderKind.TRIPLE, 3)
    kept = encoder.model.state_dict()
    moved = 0.0
    for name, value in kept.items():
        if value.is_floating_point():
            learned = trained_encoder.weights[f"encoder.{name}"]
            wanted = 0.25 * before[name] + 0.75 * learned
            assert torch.allclose(value, wanted, atol=2e-3), name
            moved = max(moved, float((value - learned).abs().max()))
    assert moved > 5e-3


@pytest.mark.train
def test_a_resumed_run_ends_where_an_unbroken_one_does(
    encoder_config: EncoderConfig, check_resuming: Callable[[Config], None]
) -> None:
    check_resuming(changed(encoder_config, kind=EncoderKind.HEADS, eight_bits=True))


@pytest.mark.train
def test_a_model_in_8_bits_is_kept_with_rounded_weights_and_its_scales(
    encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    train_once(changed(without_nli(encoder_config), eight_bits=True), tmp_path)
    model = UtteranceEncoder(tmp_path / "model", device="cpu").model
    transformer = transformer_of(model)
    plain = {name: linear.weight.clone() for name, linear in eight_bits.matrices(transformer)}
    in_8_bits(model, tmp_path / "model")
    eight_bits.round_weights(transformer)
    for name, linear in eight_bits.matrices(transformer):
        assert torch.allclose(linear.weight, plain[name], rtol=2e-3, atol=1e-6), name


@pytest.mark.train
def test_heads_are_trained_with_the_encoder_and_kept_beside_it(
    encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    config = changed(encoder_config, kind=EncoderKind.HEADS)
    before = make_learner(config).heads
    trained = train_once(config, tmp_path)
    encoder = UtteranceEncoder(tmp_path / "model", device="cpu")
    assert encoder.kind is EncoderKind.HEADS
    assert encoder.heads
    assert before
    for name, value in encoder.heads.state_dict().items():
        learned = trained.weights[f"heads.{name}"]
        wanted = 0.25 * before.state_dict()[name] + 0.75 * learned
        assert torch.allclose(value, wanted, atol=2e-3), name
        moved = (learned - before.state_dict()[name]).abs().amax((1, 2))
        assert (moved > 1e-3).all(), name  # all heads
    goes_on = make_learner(changed(config, base=str(tmp_path / "model"), keep_base=0.0))
    assert goes_on.heads
    assert torch.equal(goes_on.heads.up, encoder.heads.up)


def test_a_step_of_heads_trains_both_sides_and_reads_each_text_twice(
    encoder_config: EncoderConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(without_nli(encoder_config), kind=EncoderKind.HEADS)
    batch = learner.batches(0)[0]
    cropped = [crop(window, 11, np.random.default_rng(0)) for window in batch]
    seen: list[losses.Vectors] = []
    of = losses.Vectors.of
    monkeypatch.setattr(losses.Vectors, "of", lambda *args: (seen.append(of(*args)), seen[-1])[1])
    _, texts = learner.loss(batch, np.random.default_rng(0))
    assert texts == 2 * len({said.text for window in cropped for said in window.utterances})
    answered = [len({said.speaker for said in window.utterances[1:]}) for window in cropped]
    assert len(seen[0].target) == sum(answered) > len(batch)


def test_the_vectors_of_a_step_are_those_of_the_heads(encoder_config: EncoderConfig) -> None:
    learner = make_learner(encoder_config, kind=EncoderKind.HEADS)
    assert learner.heads
    torch.nn.init.normal_(learner.heads.down, std=0.3)
    laid_out = collate(both_sides(), EncoderKind.HEADS)
    encoded = torch.nn.functional.normalize(torch.randn(len(laid_out.items), DIMENSION), dim=-1)
    vectors = losses.Vectors.of(encoded, laid_out, learner.heads)
    read = {
        Role.FIRST: (laid_out.first, vectors.first),
        Role.SECOND: (laid_out.second, vectors.second),
        Role.SUPPOSED: (laid_out.after, vectors.supposed),
    }
    for role, (places, got) in read.items():
        for (v, t), mine in np.ndenumerate(laid_out.target):
            relation = Relation.SAME if mine else Relation.OTHER
            place = places[v, t]
            item = RoleText("", role, relation)
            wanted = learner.heads.in_roles(encoded[place : place + 1].numpy(), [item])[0]
            if laid_out.spoken[v, t]:
                np.testing.assert_allclose(got[v, t].detach().numpy(), wanted, atol=1e-5)


@pytest.mark.train
@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        (EncoderKind.CURVED_WITHOUT_SPEAKERS, "ccl"),
        (EncoderKind.TRIPLE_WITHOUT_SPEAKERS, "c3l"),
    ],
)
def test_an_encoder_trains_without_speakers(
    kind: EncoderKind, objective: str, encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    config = changed(without_nli(encoder_config), kind=kind, objectives={objective: 1.0})
    train_once(config, tmp_path)
    assert UtteranceEncoder(tmp_path / "model", device="cpu").kind is kind


def test_c3l_can_learn_from_the_pairs_of_ccl(encoder_config: EncoderConfig) -> None:
    found = []
    for positives in ("triples", "pairs"):
        objectives = {"c3l": 1.0, "c3l_positives": positives}
        learner = make_learner(without_nli(encoder_config), objectives=objectives)
        parts, _ = learner.loss(learner.batches(0)[0], np.random.default_rng(1))
        found.append(parts["c3l"].item())
    assert found[0] != pytest.approx(found[1])


def test_a_curved_encoder_goes_on_as_a_triple_encoder(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    curved = tiny_encoder_folder(EncoderKind.CURVED)
    learner = make_learner(encoder_config, base=str(curved))
    before = UtteranceEncoder(curved, device="cpu")
    table = before.model[0].auto_model.get_input_embeddings().weight
    after = learner.encoder[0].auto_model.get_input_embeddings().weight
    assert torch.equal(after[: len(table)], table)
    assert len(after) == len(table) + 2


def test_an_encoder_becomes_none_that_knows_less(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    base = tiny_encoder_folder(EncoderKind.HEADS)
    with pytest.raises(ModelError, match=f"base '{base}' is a heads encoder"):
        make_learner(encoder_config, base=str(base))


def test_heads_learn_from_minimal_pairs_and_similarities(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    said = {"speaker": "bot", "text": "words 1"}
    pair = {"kind": "k", "context": [said], "answers": ["turn", "of"], "replies": ["1", "2"]}
    pairs.write_text(json.dumps(pair))
    corpus = encoder_config.data[0].path
    config = changed(
        without_nli(encoder_config),
        kind=EncoderKind.HEADS,
        noise=0.5,
        similar={
            "teacher": str(tiny_encoder_folder(EncoderKind.SINGLE)),
            "data": [{"path": corpus}],
            "utterances": 8,
        },
        minimal_pairs={"paths": [str(pairs)], "pairs": 2},
        objectives={"similarity": 1.0, "minimal_pairs": 1.0},
    )
    learner = make_learner(config)
    step = learner.batches(0)[0]
    optimiser = learner.optimiser()
    losses = [step_loss(learner, step, optimiser) for _ in range(8)]
    assert losses[-1] < 0.9 * losses[0]


def test_heads_learn_every_role_from_a_teacher(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    def distance(teacher: Path) -> float:
        config = without_nli(changed(encoder_config, kind=EncoderKind.HEADS, base=str(taught)))
        objectives = {"distil": 2.0}
        learner = make_learner(config, teacher=str(teacher), objectives=objectives)
        parts, _ = learner.loss(learner.batches(0)[0], np.random.default_rng(0))
        return parts["distil"].item()

    taught = tiny_encoder_folder(EncoderKind.HEADS)
    assert distance(taught) == pytest.approx(0, abs=1e-5)
    assert distance(tiny_encoder_folder(EncoderKind.TRIPLE)) > 0.1


@pytest.mark.train
def test_heads_learn_from_the_encoder_below_them_which_stays(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    folder = tiny_encoder_folder(EncoderKind.TRIPLE)
    config = changed(
        without_nli(encoder_config),
        kind=EncoderKind.HEADS,
        base=str(folder),
        keep_base=0.0,
        layers=0,
        teacher="base",
        objectives={"distil": 1.0, "ccl": 1.0},
    )
    before = make_learner(config)
    after = train_once(config, tmp_path)
    moved = {
        n for n, value in before.state_dict().items() if not torch.equal(value, after.weights[n])
    }
    assert moved == {"heads.linear", "heads.up", "heads.down"}
    triple, heads = (UtteranceEncoder(f, device="cpu") for f in (folder, tmp_path / "model"))
    for role, relation in ((Role.AFTER, None), (Role.SECOND, Relation.OTHER)):
        ours, theirs = (e.encode(["words of turn 1"], role, relation) for e in (heads, triple))
        np.testing.assert_allclose(ours, theirs, atol=5e-3)  # kept in float16


def test_new_heads_start_where_they_say_most_about_their_teacher(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    folder = tiny_encoder_folder(EncoderKind.TRIPLE)
    teacher = UtteranceEncoder(folder, device="cpu")

    def likeness(learner: EncoderLearner) -> Float64:
        """Mean cosines (5, 5) of what each head says and the teacher's vectors in each role."""
        student = UtteranceEncoder(learner.encoder, heads=learner.heads)
        texts = [f"words {number} of turn 1" for number in range(12)]
        theirs, ours = (np.stack([e.encode(texts, *r) for r in HEADS]) for e in (teacher, student))
        return np.einsum("rtd,std->rs", ours, theirs) / len(texts)

    config = changed(without_nli(encoder_config), kind=EncoderKind.HEADS)
    taught = likeness(make_learner(config, teacher=str(folder), objectives={"distil": 1.0}))
    assert taught.argmax(axis=1).tolist()[:3] == [0, 1, 2]  # each head its own role
    assert taught[3, 3] - taught[3, 4] > 0 < taught[4, 4] - taught[4, 3]
    assert taught.diagonal().min() > 0.99 > likeness(make_learner(config)).max()


def test_an_encoder_with_prefixes_learns_from_one_of_its_kind(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    base = str(tiny_encoder_folder(EncoderKind.TRIPLE))
    config = without_nli(changed(encoder_config, base=base))
    learner = make_learner(config, teacher=base, objectives={"distil": 2.0})
    step = learner.batches(0)[0]
    assert step_loss(learner, step) == pytest.approx(0, abs=1e-5)
    with torch.no_grad():
        for weights in learner.encoder.parameters():
            weights.add_(0.3 * torch.randn_like(weights))
    optimiser = learner.optimiser()
    losses = [step_loss(learner, step, optimiser) for _ in range(8)]
    assert losses[-1] < 0.9 * losses[0]


def test_a_single_encoder_learns_from_a_teacher_where_every_text_is_a_target(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    base = str(tiny_encoder_folder(EncoderKind.SINGLE))
    objectives = {"distil": 1.0}
    changes = {"kind": EncoderKind.SINGLE, "base": base, "teacher": base, "objectives": objectives}
    learner = make_learner(encoder_config, nli=None, **changes)
    said = tuple(Utterance("AB"[n % 2], text) for n, text in enumerate(("Hi", "Hi", "Bye", "Bye")))
    step = [Window(Dialogue("d", said), said, "B")]
    assert step_loss(learner, step) == pytest.approx(0, abs=1e-5)


def step_loss(
    learner: EncoderLearner, step: list[Window], optimiser: torch.optim.Optimizer | None = None
) -> float:
    """Return the loss of a step, which is then learned from if there is an optimiser."""
    parts, _ = learner.loss(step, np.random.default_rng(0))
    loss = sum(parts.values(), torch.tensor(0.0))
    if optimiser:
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return loss.item()


@pytest.mark.parametrize(
    ("kind", "teacher", "why"),
    [
        (EncoderKind.HEADS, EncoderKind.CURVED, "has no"),
        (EncoderKind.TRIPLE, EncoderKind.HEADS, "is a heads encoder and cannot teach a triple one"),
    ],
)
def test_a_teacher_has_what_it_teaches(
    tiny_encoder_folder: Folder,
    encoder_config: EncoderConfig,
    kind: EncoderKind,
    teacher: EncoderKind,
    why: str,
) -> None:
    folder = str(tiny_encoder_folder(teacher))
    config = changed(
        encoder_config, kind=kind, nli=None, objectives={"distil": 1.0}, teacher=folder
    )
    with pytest.raises(ModelError, match=f"teacher '{folder}' {why}"):
        make_learner(config)


def test_a_shallow_encoder_keeps_layers_of_its_base(
    encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    learner = make_learner(encoder_config, depth=1)
    learner.save(tmp_path / "model")
    kept = UtteranceEncoder(tmp_path / "model", device="cpu")
    assert transformer_of(kept.model).config.num_hidden_layers == 1
    ours = UtteranceEncoder(learner.encoder).encode(["a", "b c"], Role.AFTER)
    np.testing.assert_allclose(kept.encode(["a", "b c"], Role.AFTER), ours, atol=5e-3)
    with pytest.raises(ModelError, match="no 3 layers"):
        make_learner(encoder_config, depth=3)


def test_each_text_of_a_step_is_encoded_once_a_role(
    encoder_config: EncoderConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(without_nli(encoder_config))
    windows = learner.batches(0)[0]
    wanted = set()
    for window in (crop(window, 11, np.random.default_rng(0)) for window in windows):
        for utterance in window.utterances:
            mine = utterance.speaker == window.responder
            wanted |= {(position, mine, utterance.text) for position in ("[B1]", "[B2]")}
            if mine:
                wanted.add(("[AFTER]", mine, utterance.text))
    encoded: list[int] = []

    def count(model: object, tokens: list[list[int]], dtype: torch.dtype) -> torch.Tensor:
        encoded.append(len(tokens))
        return forward(model, tokens, dtype)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder_module, "forward", count)
    _, texts = learner.loss(windows, np.random.default_rng(0))
    assert sum(encoded) == texts == len(wanted)


def test_an_epoch_is_the_same_for_the_same_seed_only(encoder_config: EncoderConfig) -> None:
    one, two, other = (make_learner(encoder_config, seed=seed).batches(0) for seed in (1, 1, 2))
    assert one == two
    assert one != other
    assert [len(batch) for batch in one] == [5] * 4


def test_a_spaced_batch_is_spaced_as_a_whole(encoder_config: EncoderConfig, tmp_path: Path) -> None:
    path = write_dialogues(tmp_path / "d.jsonl", [["No, I don't.", "Why?"]] * 20)
    learner = make_learner(encoder_config, data=[{"path": str(path)}], batch_windows=2)
    styles = [{w.utterances[0].text for w in batch} for batch in learner.batches(0)]
    assert sorted(map(len, styles)) == [1] * 10
    assert set.union(*styles) == {"No, I don't.", "No , I don ' t ."}


@pytest.mark.train
def test_tied_weights_are_kept_once(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    plain = tiny_encoder_folder(EncoderKind.SINGLE)
    tied = tmp_path / "t5"
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(plain)
    shape = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2
    )
    T5EncoderModel(shape).save_pretrained(tied)
    tokenizer.save_pretrained(tied)
    config = changed(encoder_config, base=str(tied), optimiser={"learning_rate": 0.02})
    run = train_once(config, tmp_path / "out")
    before = make_learner(config).encoder.state_dict()
    learned = {name.removeprefix("encoder."): w for name, w in run.weights.items()}
    kept = UtteranceEncoder(tmp_path / "out" / "model", device="cpu").model.state_dict()
    assert len({*before} & {*learned}) == len(before) - 1
    for name in {*before} & {*learned}:
        wanted = 0.25 * before[name] + 0.75 * learned[name]
        assert torch.allclose(kept[name], wanted, atol=2e-3), name


@pytest.mark.train
def test_a_step_of_one_window_can_be_learned_from(
    encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    data = [encoder_config.data[0].model_dump() | {"windows": 1}]
    run = train_once(changed(encoder_config, data=data), tmp_path)
    assert len(run.seen) == 1


def test_texts_that_the_model_cuts_are_named_once(
    encoder_config: EncoderConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    longest = "a " * (128 - len(["[CLS]", "[B1]", "[E]", "[BEFORE]", "[SEP]"]))
    texts = [["b", longest], ["c", "d", longest + "e", longest + "f"]]
    path = write_dialogues(tmp_path / "long.jsonl", texts)
    make_learner(encoder_config, data=[{"path": str(path)}])
    (warning,) = caplog.messages
    assert warning.startswith(f'{path}, dialogue "d1", utterance 3: longer than the model reads')
    assert warning.endswith("as are 2 of 6 in all")


@pytest.mark.parametrize(
    ("dialogues", "said"),
    [
        ([["anybody here"]], "has no dialogue with an answer"),
        ([["one", "two", "three", "four", "five"]], "has only one dialogue"),
    ],
)
def test_a_corpus_without_rivals_is_refused(
    encoder_config: EncoderConfig, tmp_path: Path, dialogues: list[list[str]], said: str
) -> None:
    path = write_dialogues(tmp_path / "single.jsonl", dialogues)
    with pytest.raises(DataError, match=rf"single\.jsonl: {said}"):
        make_learner(encoder_config, data=[{"path": str(path)}])
