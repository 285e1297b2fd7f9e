import json
from copy import deepcopy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, T5Config, T5EncoderModel

from tests.fixtures.encoders import DIMENSION
from tests.unit.models.conftest import Folder
from tests.unit.models.training.conftest import both_sides, take_steps, write_dialogues
from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder import torch as encoder_module
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE
from turnwise.models.encoder.head_arrays import HEADS
from turnwise.models.encoder.torch import UtteranceEncoder, forward, transformer_of
from turnwise.models.errors import DataError, ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, prefixed, relation_to
from turnwise.models.training import losses
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.learners.encoder import EncoderLearner
from turnwise.models.training.trainer import fit
from turnwise.models.training.windows import Window, collate, crop


def make_learner(config: EncoderConfig, **changes: object) -> EncoderLearner:
    return EncoderLearner(changed(config, **changes), Path)


def changed(config: EncoderConfig, **changes: object) -> EncoderConfig:
    return EncoderConfig.model_validate(config.model_dump() | changes)


def without_nli(config: EncoderConfig) -> EncoderConfig:
    objectives = config.objectives.model_dump() | {"nli": 0.0}
    return changed(config, nli=None, objectives=objectives)


def test_every_objective_has_its_part_of_the_loss(encoder_config: EncoderConfig) -> None:
    learner = make_learner(encoder_config)
    parts, _ = learner.loss(learner.batches(0)[0], np.random.default_rng(0))
    of_queries = {"running_query_2", "running_query_mean"}
    assert parts.keys() == {"ccl", "c3l", *of_queries, "reach", "order", "nli"}


def test_the_base_and_its_heads_are_kept_in_part(
    encoder_config: EncoderConfig, tmp_path: Path
) -> None:
    config = changed(encoder_config, kind=EncoderKind.HEADS, optimiser={"learning_rate": 0.02})
    learner = make_learner(config)
    before = deepcopy(learner.state_dict())
    take_steps(learner, 3)
    learner.save(tmp_path)
    kept = UtteranceEncoder(tmp_path, device="cpu")
    assert kept.heads
    assert (kept.kind, kept.aggregation.last_rows) == (EncoderKind.HEADS, 3)
    for part, module in (("encoder", kept.model), ("heads", kept.heads)):
        moved = 0.0
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                learned = learner.state_dict()[f"{part}.{name}"]
                wanted = 0.25 * before[f"{part}.{name}"] + 0.75 * learned
                assert torch.allclose(value, wanted, atol=2e-3), name
                moved = max(moved, float((value - learned).abs().max()))
        assert moved > 5e-3
    goes_on = make_learner(config, base=str(tmp_path))
    assert goes_on.heads
    assert torch.equal(goes_on.heads.up, kept.heads.up)


def test_a_model_in_8_bits_is_kept_with_rounded_weights_and_its_scales(
    heads_config: EncoderConfig, tmp_path: Path
) -> None:
    make_learner(heads_config).save(tmp_path)
    model = UtteranceEncoder(tmp_path, device="cpu").model
    transformer = transformer_of(model)
    plain = {name: linear.weight.clone() for name, linear in eight_bits.matrices(transformer)}
    eight_bits.simulate_with(transformer, tmp_path / SCALES_FILE)
    eight_bits.round_weights(transformer)
    for name, linear in eight_bits.matrices(transformer):
        assert torch.allclose(linear.weight, plain[name], rtol=2e-3, atol=1e-6), name


def test_an_encoder_in_8_bits_that_stays_keeps_its_scales(
    heads_config: EncoderConfig, tmp_path: Path
) -> None:
    make_learner(heads_config).save(tmp_path / "base")
    config = heads_config.model_copy(update={"base": str(tmp_path / "base"), "layers": 0})
    learner = make_learner(config)
    take_steps(learner, 2)
    learner.save(tmp_path / "model")
    before, after = (load_file(tmp_path / name / SCALES_FILE) for name in ("base", "model"))
    assert {name: array.tolist() for name, array in after.items()} == {
        name: array.tolist() for name, array in before.items()
    }


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
    losses = take_steps(make_learner(config), 8)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("kind", [EncoderKind.SINGLE, EncoderKind.TRIPLE, EncoderKind.HEADS])
def test_a_copy_of_the_teacher_has_nothing_to_learn(
    kind: EncoderKind, tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    base = str(tiny_encoder_folder(kind))
    learner = make_learner(
        encoder_config, nli=None, kind=kind, base=base, teacher=base, objectives={"distil": 2.0}
    )
    said = tuple(Utterance("AB"[n % 2], text) for n, text in enumerate(("Hi", "Hi", "Bye", "Bye")))
    parts, _ = learner.loss([Window(Dialogue("d", said), said, "B")], np.random.default_rng(0))
    assert parts["distil"].item() == pytest.approx(0, abs=1e-5)


def test_a_teacher_keeps_the_layers_that_its_pupil_leaves_out(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    config = changed(
        without_nli(encoder_config),
        kind=EncoderKind.HEADS,
        base=str(tiny_encoder_folder(EncoderKind.HEADS)),
        teacher="base",
        layers=0,
        depth=1,
        objectives={"distil": 1.0},
    )
    learner = make_learner(config)
    parts, _ = learner.loss(learner.batches(0)[0], np.random.default_rng(0))
    assert parts["distil"].item() > 1e-5


def test_an_encoder_learns_from_a_teacher(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    base = str(tiny_encoder_folder(EncoderKind.TRIPLE))
    config = without_nli(changed(encoder_config, base=base))
    learner = make_learner(config, teacher=base, objectives={"distil": 2.0})
    with torch.no_grad():
        for weights in learner.encoder.parameters():
            weights.add_(0.3 * torch.randn_like(weights))
    losses = take_steps(learner, 8)
    assert losses[-1] < 0.9 * losses[0]


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
    learner = make_learner(config)
    before = deepcopy(learner.state_dict())
    take_steps(learner, 2)
    moved = {n for n, value in learner.state_dict().items() if not torch.equal(value, before[n])}
    assert moved == {"heads.linear", "heads.up", "heads.down"}
    learner.save(tmp_path)
    triple, heads = (UtteranceEncoder(f, device="cpu") for f in (folder, tmp_path))
    for role in (Role.AFTER, Role.SAID):
        ours, theirs = (e.encode(["words of turn 1"], role) for e in (heads, triple))
        np.testing.assert_allclose(ours, theirs, atol=5e-3)  # kept in float16


def test_new_heads_start_where_they_say_most_about_their_teacher(
    tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    folder = tiny_encoder_folder(EncoderKind.TRIPLE)
    teacher = UtteranceEncoder(folder, device="cpu")

    def likeness(learner: EncoderLearner) -> Float64:
        """Mean cosines (6, 6) of what each head says and the teacher's vectors in each role."""
        student = UtteranceEncoder(learner.encoder, heads=learner.heads)
        texts = [f"words {number} of turn 1" for number in range(12)]
        theirs, ours = (np.stack([e.encode(texts, *r) for r in HEADS]) for e in (teacher, student))
        return np.einsum("rtd,std->rs", ours, theirs) / len(texts)

    config = changed(without_nli(encoder_config), kind=EncoderKind.HEADS)
    taught = likeness(make_learner(config, teacher=str(folder), objectives={"distil": 1.0}))
    assert taught.argmax(axis=1).tolist()[:3] == [0, 1, 2]  # each head its own role
    assert taught[3, 3] - taught[3, 4] > 0 < taught[4, 4] - taught[4, 3]
    # The last head starts as the identity, which is the teacher's vector.
    assert taught.diagonal().min() > 0.99 > likeness(make_learner(config))[:5, :5].max()


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


@pytest.mark.parametrize("kind", [EncoderKind.TRIPLE, EncoderKind.HEADS])
def test_each_text_of_a_step_is_encoded_once_as_it_is_read(
    kind: EncoderKind, encoder_config: EncoderConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(without_nli(encoder_config), kind=kind)
    windows = learner.batches(0)[0]
    wanted = set()
    for window in (crop(window, 11, np.random.default_rng(0)) for window in windows):
        sides = window.both_sides() if kind is EncoderKind.HEADS else [window]
        for side, said in product(sides, window.utterances):
            relation = relation_to(said.speaker, side.responder)
            roles = {Role.FIRST, Role.SECOND}
            if kind is EncoderKind.HEADS or relation is Relation.SAME:
                roles.add(Role.AFTER)
            wanted |= {prefixed(kind, RoleText(said.text, role, relation)) for role in roles}
    encoded: list[int] = []

    def count(model: object, tokens: list[list[int]], dtype: torch.dtype) -> torch.Tensor:
        encoded.append(len(tokens))
        return forward(model, tokens, dtype)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder_module, "forward", count)
    _, texts = learner.loss(windows, np.random.default_rng(0))
    assert sum(encoded) == texts == len(wanted)


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
    fit(EncoderLearner(config, Path), tmp_path / "out")
    before = make_learner(config).encoder.state_dict()
    weights = load_file(tmp_path / "out" / "checkpoint" / "learner.safetensors")
    learned = {name.removeprefix("encoder."): w for name, w in weights.items()}
    kept = UtteranceEncoder(tmp_path / "out" / "model", device="cpu").model.state_dict()
    assert len({*before} & {*learned}) == len(before) - 1
    for name in {*before} & {*learned}:
        wanted = 0.25 * before[name] + 0.75 * learned[name]
        assert torch.allclose(kept[name], wanted, atol=2e-3), name


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
