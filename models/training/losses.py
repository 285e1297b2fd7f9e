"""The loss functions (objectives): curved contrastive (CCL), C3L, order, distillation and others.

Those of dialogues share the vectors of a step (`Vectors`), in which each text is encoded once.

| objective | inputs | paper |
|---|---|---|
| `curved_loss` | pairs | CCL, eq. 1 and 5 |
| `curved_loss` | triples | C3L, section 3 |
| `running_query_loss` | running queries (C3L eq. 3), all targets of the step | InfoNCE, ours |
| `reach_loss` | single utterances, the targets ahead of them | CCL as a ranking, ours |
| `order_loss` | two utterances of the responder | CCL section 6 link by link, ours |
| `contrastive_loss` | contexts, responses | DSE-P; `running_query_loss` |
| `supposed_loss` | [B2] of utterances, exact and as heads estimate it | ours |
| `distillation_loss` | texts as [AFTER] and in a context role, a teacher's vectors of them | ours |
| `similarity_loss` | utterances as examples, another encoder's vectors of them | ours |
| `minimal_pairs_loss` | running queries of pairs of contexts, a reply to each | ours |
| `list_loss` | logits of candidates, in lists | ListNet |
| `NliHead` | premises, hypotheses, labels | Sentence-BERT |

The vectors of a step are laid out by window and turn, as in `windows.WindowBatch`: `first`,
`second` and `after` are (W, T, d) unit vectors; `spoken` and `target` are (W, T). Both windows of a
dialogue may be in a step: they count as the same dialogue.

A step by hand, with random vectors in place of an encoder's:

    >>> import numpy as np
    >>> import torch
    >>> from torch.nn import functional
    >>> from turnwise.models.data import Dialogue, Utterance
    >>> from turnwise.models.roles import EncoderKind
    >>> from turnwise.models.training.losses import Vectors, curved_loss
    >>> from turnwise.models.training.windows import collate, pair_examples, windows_of
    >>> said = (Utterance("A", "Tea?"), Utterance("B", "Yes, please."), Utterance("A", "Sugar?"))
    >>> batch = collate(list(windows_of(Dialogue("d", said))), EncoderKind.CURVED)
    >>> encoded = torch.randn(len(batch.items), 8, generator=torch.manual_seed(0))
    >>> vectors = Vectors.of(functional.normalize(encoded, dim=1), batch)
    >>> rng = np.random.default_rng(0)
    >>> examples = pair_examples(batch, 5, rng, directional=True, curved=True)
    >>> curved_loss(vectors, examples) > 0
    tensor(True)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.encoder.heads import RoleHeads
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.models.training.windows import Examples, WindowBatch, pair_score

MIXTURE_EPSILON = 1e-6
NO_RIVAL = -1e4
"""A logit with no weight in a softmax; finite, so that gradients are finite without any rival."""
SCORE_SCALE = 20.0
"""Inverse temperature of the scores that a teacher's scores are compared with."""
SCORE_SHARE = 0.2
"""Weight of the divergence of scores, relative to the distance of vectors."""
PAIR_SCALE = 20.0
"""Inverse temperature of the replies to minimal pairs."""
PAIR_MARGIN = 1.0
"""Scaled margin by which the right reply of a minimal pair is to win."""
ALL_REPLIES = 0.25
"""Weight of the softmax over the replies of all minimal pairs, relative to that of each pair."""
ORDER_SCALE = 10.0
"""Inverse temperature of the order of utterances: a margin of 0.1 makes it e times as likely."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a step.

    Attributes:
        first: (W, T, d) float32, [B1].
        second: (W, T, d) float32, [B2]; for CCL the only context role.
        supposed: (W, T, d) float32, [B2] as heads compute it from [AFTER]; else equal to `second`.
        after: (W, T, d) float32, [AFTER]; meaningful where `target`.
        after_text: (W, T) int64, equal where two targets are the same text.
        spoken: (W, T) bool.
        target: (W, T) bool.
        dialogue: (W,) int64, equal where two windows are of the same dialogue.
        passed_over: (R, d) float32, [AFTER] of the texts that people passed over for a target.
        preferred: (R,) int64, index of that target in the flattened (W * T) turns.
    """

    first: Tensor
    second: Tensor
    supposed: Tensor
    after: Tensor
    after_text: Tensor
    spoken: Tensor
    target: Tensor
    dialogue: Tensor
    passed_over: Tensor
    preferred: Tensor

    @classmethod
    def of(cls, encoded: Tensor, batch: WindowBatch, heads: RoleHeads | None = None) -> Self:
        """Lay out (U, d) vectors of a batch's distinct texts by window and turn."""

        def on_device(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(encoded.device)

        after_text = on_device(batch.after)
        first = encoded[on_device(batch.first)]
        second = encoded[on_device(batch.second)]
        after = encoded[after_text]
        supposed = second
        if heads:
            relations = [Relation.SAME if own else Relation.OTHER for own in batch.target.flat]
            # `supposed_loss` teaches the heads, not the encoder.
            supposed = _by_heads(heads, after.detach(), Role.SUPPOSED, relations)
            first = _by_heads(heads, first, Role.FIRST, relations)
            second = _by_heads(heads, second, Role.SECOND, relations)
        return cls(
            first=first,
            second=second,
            supposed=supposed,
            after=after,
            after_text=after_text,
            spoken=on_device(batch.spoken),
            target=on_device(batch.target),
            dialogue=on_device(batch.dialogue),
            passed_over=encoded[on_device(batch.passed_over)],
            preferred=on_device(batch.preferred),
        )


def _by_heads(heads: RoleHeads, read: Tensor, role: Role, relations: Sequence[Relation]) -> Tensor:
    """Return the vectors (W, T, d) of a role that heads compute from those that were read."""
    items = [RoleText("", role, relation) for relation in relations]
    computed: Tensor = heads(read.flatten(0, 1), items)
    return computed.view_as(read)


def curved_loss(vectors: Vectors, *examples: Examples) -> Tensor:
    """Return the mean squared error of the cosines against their targets; 0 without examples.

    With pairs it is CCL's objective, (cos(b_i, a_k) - score)²; with triples it is C3L's,
    (cos((b1_i + b2_j) / 2, a_k) - score)². `windows.pair_score` and `windows.triple_score` are
    the targets.

    Args:
        vectors: The step's vectors.
        examples: Pairs (`windows.pair_examples`), triples (`windows.triple_examples`), or both.
    """
    errors = torch.cat([_curved_errors(vectors, each) for each in examples])
    return errors.square().sum() / max(len(errors), 1)


def _curved_errors(vectors: Vectors, examples: Examples) -> Tensor:
    """Return the cosines (N,) of pairs or of triples less their targets."""
    device = vectors.after.device
    after = vectors.after.flatten(0, 1)[examples.after.to(device)]
    mixture = vectors.second.flatten(0, 1)[examples.second.to(device)]
    if not torch.equal(examples.first, examples.second):
        first = vectors.first.flatten(0, 1)[examples.first.to(device)]
        mixture = functional.normalize(first + mixture, dim=-1, eps=MIXTURE_EPSILON)
    return (mixture * after).sum(-1) - examples.score.to(device)


def running_queries(vectors: Vectors, last_rows: int | None, *, paired: bool) -> Tensor:
    """Return the unit running query before each turn (C3L eq. 3, folded up).

    Args:
        vectors: The step's vectors.
        last_rows: Rows that count; None for all.
        paired: Whether rows are mixtures of pairs; otherwise CCL's plain sum.

    Returns:
        (W, T, d): at turn t the query of the context u_1..u_(t-1); zero at the first turn.
    """
    if paired:
        pairs = vectors.first[:, :, None] + vectors.second[:, None]
        mixtures = functional.normalize(pairs, dim=-1, eps=MIXTURE_EPSILON)
        turns = mixtures.shape[1]
        earlier = torch.ones(turns, turns, device=mixtures.device).triu(1)
        rows = torch.einsum("vijd,ij->vjd", mixtures, earlier)
    else:
        rows = vectors.second
    total = rows.cumsum(1)
    if last_rows is not None:
        total = total - functional.pad(total, (0, 0, last_rows, 0))[:, : total.shape[1]]
    if paired:  # a context of one utterance has no pair: its query is its own vector
        total = torch.cat([vectors.second[:, :1], total[:, 1:]], dim=1)
    shifted = functional.pad(total, (0, 0, 1, 0))[:, :-1]
    return functional.normalize(shifted, dim=-1, eps=MIXTURE_EPSILON)


def running_query_loss(
    vectors: Vectors, queries: Tensor, scale: Tensor, *, same_dialogue: bool
) -> Tensor:
    """Return the contrastive loss of the running query against all targets of the step.

    InfoNCE in both directions: each query must find its next utterance among the targets of
    the batch, and each target its query. It optimises the sum that is used at inference; the
    curved objectives optimise each pair alone. Targets with the same text as the right one
    are left out. A text that people passed over for a target is a rival of that target alone.

    Args:
        vectors: The step's vectors.
        queries: (W, T, d) unit running queries.
        scale: Inverse temperature, a scalar.
        same_dialogue: Whether the targets at other turns of a dialogue are (hard) negatives.
    """
    asked = vectors.target.clone()
    asked[:, 0] = False
    logits = scale * queries[asked] @ vectors.after[asked].T
    text = vectors.after_text[asked]
    dialogue = vectors.dialogue[asked.nonzero()[:, 0]]
    excluded = text[:, None] == text[None, :]
    if not same_dialogue:
        excluded |= dialogue[:, None] == dialogue[None, :]
    others = scale * queries[asked] @ vectors.passed_over.T
    turn = asked.flatten().nonzero()
    others = others.masked_fill(turn != vectors.preferred[None, :], -torch.inf)
    return contrastive_loss(logits, excluded, others)


def contrastive_loss(logits: Tensor, excluded: Tensor, others: Tensor | None = None) -> Tensor:
    """Return InfoNCE in both directions: row and column i belong together.

    Args:
        logits: (n, n).
        excluded: (n, n) bool, pairs that are not rivals, such as another copy of the right
            text; the diagonal always counts.
        others: (n, m) logits of rivals that belong to no row.

    Example:
        >>> import torch
        >>> cosines = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> same_text = torch.eye(2, dtype=torch.bool)
        >>> round(contrastive_loss(20 * cosines, same_text).item(), 6)
        2e-06
    """
    rivals = excluded.clone().fill_diagonal_(fill_value=False)
    logits = logits.masked_fill(rivals, -torch.inf)
    right = torch.arange(len(logits), device=logits.device)
    all_rivals = logits if others is None else torch.cat([logits, others], dim=1)
    forth = functional.cross_entropy(all_rivals, right)
    back = functional.cross_entropy(logits.T, right)
    return (forth + back) / 2


def list_loss(logits: Tensor, right: Tensor, sizes: Sequence[int]) -> dict[str, Tensor]:
    """Return the losses of lists of candidates with one right candidate each.

    `list` is the cross-entropy of a softmax over each list (ListNet; Cao et al., 2007): it teaches
    the order. `pair` is the binary cross-entropy of each candidate: it teaches that a logit says
    how likely a candidate is right, whatever the others are.

    Args:
        logits: (N,) of all candidates, list after list.
        right: (N,) bool, one in each list.
        sizes: Candidates of each list; their sum is N.

    Example:
        >>> import torch
        >>> losses = list_loss(torch.zeros(4), torch.tensor([True, False] * 2), [2, 2])
        >>> {name: round(loss.item(), 3) for name, loss in losses.items()}
        {'list': 0.693, 'pair': 0.693}
    """
    pair = functional.binary_cross_entropy_with_logits(logits, right.to(logits.dtype))
    pad = nn.utils.rnn.pad_sequence
    lists = pad(list(torch.split(logits, list(sizes))), batch_first=True, padding_value=-torch.inf)
    labels = pad(list(torch.split(right, list(sizes))), batch_first=True)
    of_right = labels.int().argmax(dim=1)
    return {"list": functional.cross_entropy(lists, of_right), "pair": pair}


def reach_loss(vectors: Vectors, scale: Tensor, window: int) -> Tensor:
    """Return the contrastive loss of single utterances against the targets ahead of them.

    It is CCL's loss as a ranking, for planning: an utterance must find the target that its own
    dialogue reaches i turns later (i < window), and that target must find the utterance. Each such
    pair has two softmaxes. In one, the rivals are turns of other dialogues. In the other, they are
    turns of the same dialogue that are in the wrong order or further away. In a single softmax, the
    many other dialogues would outweigh the own one, which teaches the order of goals.

    Nearer turns and targets with the same text are not rivals. So the similarity falls with the
    distance, and stays above that of other dialogues. A pair at distance i has CCL's
    weight, (l - i) / l.

    Args:
        vectors: The step's vectors.
        scale: Inverse temperature, a scalar.
        window: Utterances that are looked at together, the target included.
    """
    said_window, said_turn = vectors.spoken.nonzero().unbind(1)  # (S,)
    target_window, target_turn = vectors.target.nonzero().unbind(1)  # (K,)
    said = vectors.second[said_window, said_turn]
    targets = vectors.after[target_window, target_turn]
    logits = scale * said @ targets.T  # (S, K)
    distance = target_turn[None, :] - said_turn[:, None]
    same_window = said_window[:, None] == target_window[None, :]
    dialogue = vectors.dialogue
    other_dialogue = dialogue[said_window][:, None] != dialogue[target_window][None, :]
    text = vectors.after_text[target_window, target_turn]
    total = logits.new_zeros(())
    weights = 0.0
    for i in range(1, window):
        reached = same_window & (distance == i)  # at most one target of each utterance
        if not reached.any():
            continue
        text_reached = torch.where(reached.any(1), text[reached.int().argmax(1)], -1)
        other_text = text_reached[:, None] != text[None, :]
        further = same_window & ((distance <= 0) | (distance > i))
        weight = pair_score(i, window)
        for rivals in (other_dialogue, further):
            for surprise in _surprises(logits, reached, rivals & other_text):
                total = total + weight * surprise
        weights += 4 * weight
    return total / max(weights, 1.0)


def _surprises(logits: Tensor, pairs: Tensor, rivals: Tensor) -> Iterator[Tensor]:
    """Yield InfoNCE of pairs (S, K) against the rivals (S, K) in their columns, then their rows."""
    of_rivals = logits.masked_fill(~rivals, NO_RIVAL)
    for dim in (0, 1):
        behind = of_rivals.logsumexp(dim, keepdim=True) - logits
        yield functional.softplus(behind)[pairs].mean()


def order_loss(vectors: Vectors, window: int) -> Tensor:
    """Return the logistic loss of the order of two utterances of the responder; 0 without any.

    It trains the links of a chain of goals (CCL section 6): of two utterances less than `window`
    utterances apart, the cosine from the earlier to the later must be larger than the one from the
    later to the earlier. CCL's directional negatives train each of the two cosines alone, as one
    squared error among many.

    Args:
        vectors: The step's vectors.
        window: Utterances that are looked at together, the target included.
    """
    cosine = vectors.second @ vectors.after.transpose(1, 2)
    margin = cosine - cosine.transpose(1, 2)
    ahead = torch.ones_like(margin[0], dtype=torch.bool).triu(1).tril(window - 1)
    asked = vectors.target[:, :, None] & vectors.target[:, None] & ahead
    return functional.softplus(-ORDER_SCALE * margin[asked]).sum() / max(int(asked.sum()), 1)


def supposed_loss(vectors: Vectors) -> Tensor:
    """Return the mean cosine distance of the heads' estimates of [B2] from the encoder's own [B2].

    It teaches only the heads that make these estimates from [AFTER].
    """
    estimates = vectors.supposed[vectors.spoken]
    exact = vectors.second[vectors.spoken].detach()
    return 1 - (estimates * exact).sum(-1).mean()


def distillation_loss(vectors: tuple[Tensor, Tensor], taught: tuple[Tensor, Tensor]) -> Tensor:
    """Return how far vectors, and the scores that follow from them, are from a teacher's.

    It is the mean cosine distance of the vectors, plus a share of the mean KL divergence of the
    scores (Hinton et al., 2015): each context of the step ranks all its texts as [AFTER], and each
    [AFTER] ranks the contexts. A small distance may still change which candidate is best.

    Args:
        vectors: (n, d) and (m, d) unit rows of n ≥ 1 texts as [AFTER], and of m ≥ 1 in a context
            role.
        taught: (n, d) and (m, d) the teacher's.
    """
    distance = 1 - (torch.cat(vectors) * torch.cat(taught)).sum(-1).mean()
    scores = _scores_of(*vectors)
    wanted = _scores_of(*taught)
    divergence = torch.zeros_like(distance)
    for dim in (0, 1):
        ours = scores.log_softmax(dim)
        theirs = wanted.log_softmax(dim)
        total = functional.kl_div(ours, theirs, log_target=True, reduction="sum")
        divergence = divergence + total / scores.shape[1 - dim] / 2
    return distance + SCORE_SHARE * divergence


def similarity_loss(vectors: Tensor, taught: Tensor, scale: Tensor) -> Tensor:
    """Return how far the similarities of n utterances are from those that a teacher has.

    Each utterance ranks all others by cosine. The loss is the mean KL divergence of its softmax
    from the teacher's, so that utterances that mean the same are near each other, as examples
    must be. The dimension of the teacher may be another.

    Args:
        vectors: (n, d) unit rows, n ≥ 3.
        taught: (n, t) the teacher's.
        scale: Inverse temperature of `vectors`, a scalar; that of the teacher is `SCORE_SCALE`.
    """
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)

    def similarities(unit: Tensor, scale: Tensor | float) -> Tensor:
        return (scale * unit @ unit.T).masked_fill(itself, NO_RIVAL).log_softmax(1)

    ours = similarities(vectors, scale)
    theirs = similarities(taught, SCORE_SCALE)
    return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")


def minimal_pairs_loss(vectors: Vectors, queries: Tensor) -> Tensor:
    """Return the loss of contexts that differ in one thing, and of the reply to each.

    It is the logistic loss of the margin by which the right reply beats the one of the other
    context, plus a share of the softmax over the replies of all pairs.

    Args:
        vectors: The vectors of 2 n windows. Each window ends with its reply, and windows 2 i and
            2 i + 1 are a pair.
        queries: (2 n, T, d) unit running queries.
    """
    own = torch.arange(len(queries), device=queries.device)
    of_other = own.view(-1, 2).flip(1).flatten()  # 1, 0, 3, 2, ...
    last = vectors.spoken.sum(1) - 1
    logits = PAIR_SCALE * queries[own, last] @ vectors.after[own, last].T
    behind = logits[own, of_other] - logits[own, own]
    among_all = functional.cross_entropy(logits, own)
    return functional.softplus(PAIR_MARGIN + behind).mean() + ALL_REPLIES * among_all


def _scores_of(after: Tensor, context: Tensor) -> Tensor:
    """Return the scaled scores (m, n) of n texts as [AFTER] after m texts of a context."""
    return SCORE_SCALE * (context @ after.T)


NLI_LABELS = ("entailment", "neutral", "contradiction")


class NliHead(nn.Module):
    """Softmax over three classes of (u, v, |u - v|), as in Sentence-BERT.

    Texts come without a role. Both papers add NLI to their objective; the published code feeds
    its three labels to a loss for two classes.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * dimension, len(NLI_LABELS))

    def forward(self, premises: Tensor, hypotheses: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of (n, d) premises and hypotheses with (n,) labels."""
        features = torch.cat([premises, hypotheses, (premises - hypotheses).abs()], dim=-1)
        return functional.cross_entropy(self.linear(features), labels)
