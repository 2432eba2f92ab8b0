"""Groups → batch: token ids, loss masks, advantages a token. No tensors, no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rti.errors import NumericsError
from rti.interfaces import Objective
from rti.types import Batch, Floats, Group, Ids, Intervention, Provenance, Rollout, Sample, Span

Extends = Callable[[Sequence[int], Sequence[int]], bool]


@define
class _Piece:
    """A training sequence in the making."""

    ids: list[int] = field(factory=list)
    mask: list[bool] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    weights: list[float] = field(factory=list)
    spans: list[Span] = field(factory=list)

    def context(self, ids: Sequence[int]) -> None:
        """Tokens the policy saw: prompt, tool results, user text. Not in the loss."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.weights += [1.0] * len(ids)

    def response(
        self, ids: Ids, logprobs: Sequence[float], weights: Sequence[float], by: Provenance
    ) -> None:
        """Tokens the agent said. In the loss."""
        if not len(ids) == len(logprobs) == len(weights):
            raise NumericsError(
                f"a turn of {len(ids)} tokens has {len(logprobs)} logprobs and {len(weights)} "
                "weights: there must be one of each a token"
            )
        self.spans.append(Span(len(self.ids), len(self.ids) + len(ids), by))
        self.ids += ids
        self.mask += [True] * len(ids)
        self.logprobs += logprobs
        self.weights += weights


def pieces(rollout: Rollout, extends: Extends) -> list[_Piece]:
    """A rollout as training sequences: one, or several where a prompt does not extend the last."""
    done: list[_Piece] = []
    piece = _Piece()
    for turn in rollout.turns:
        if piece.ids and not extends(piece.ids, turn.prompt_ids):
            done.append(piece)
            piece = _Piece()
        piece.context(turn.prompt_ids[len(piece.ids) :])
        weights = (1.0,) * len(turn.completion_ids) if turn.weights is None else turn.weights
        piece.response(turn.completion_ids, turn.rollout_logprobs, weights, turn.provenance)
    return [*done, piece] if piece.ids else done


def build_batch(
    groups: Sequence[Group],
    objective: Objective,
    extends: Extends,
    policy_version: int,
    interventions: Sequence[Intervention] = (),
    metrics: Mapping[str, float] | None = None,
    aux: Mapping[str, Any] | None = None,
) -> Batch:
    """Token advantages A_{i,t} = Â_i · w_{i,t} over agent tokens (DESIGN, step 9).

    Groups whose advantages are all 0 carry no gradient and are left out, unless the objective has
    `every_group`: this filter runs here, after intervention, and nowhere before. `metrics` gains
    `groups_with_signal` (those in the batch), `splits`, `trained_tokens`, `corrected_tokens` and
    `demonstration_tokens`.

    Raises:
        NumericsError: when logprobs or weights do not match tokens, or advantages the group.
    """
    samples: list[Sample] = []
    every_group = getattr(objective, "every_group", False)
    rollout_number = splits = with_signal = 0
    for number, group in enumerate(groups):
        advantages_G = objective.advantages(group) if group.rollouts else ()
        if len(advantages_G) != len(group.rollouts):
            raise NumericsError(
                f"[objective] gave {len(advantages_G)} advantages for the "
                f"{len(group.rollouts)} rollouts of task {group.task.id}"
            )
        if not group.rollouts or not (every_group or any(advantages_G)):
            continue
        with_signal += 1
        first = len(samples)
        for rollout, advantage in zip(group.rollouts, advantages_G, strict=True):
            made = pieces(rollout, extends)
            splits += max(0, len(made) - 1)
            samples += [_sample(p, number, rollout_number, advantage) for p in made]
            rollout_number += 1
        samples[first:] = _with_prefixes(samples[first:], first)
    counted = {
        **(metrics or {}),
        "groups_with_signal": float(with_signal),
        "splits": float(splits),
        "trained_tokens": float(sum(sum(s.loss_mask) for s in samples)),
        "corrected_tokens": float(_tokens_by(samples, "correction")),
        "demonstration_tokens": float(_tokens_by(samples, "demonstration")),
    }
    return Batch(
        tuple(samples), policy_version, tuple(groups), tuple(interventions), counted, aux or {}
    )


def demonstrations(samples: Sequence[Sample]) -> tuple[Floats, ...]:
    """For each sample, 1 on the tokens that a teacher sampled and 0 on all others."""
    flags = [[0.0] * len(sample.token_ids) for sample in samples]
    for row, sample in zip(flags, samples, strict=True):
        for span in sample.spans:
            if span.provenance.kind == "demonstration":
                row[span.start : span.stop] = [1.0] * (span.stop - span.start)
    return tuple(map(tuple, flags))


def _tokens_by(samples: Sequence[Sample], kind: str) -> int:
    return sum(p.stop - p.start for s in samples for p in s.spans if p.provenance.kind == kind)


def _sample(piece: _Piece, group: int, rollout: int, advantage: float) -> Sample:
    return Sample(
        group=group,
        rollout=rollout,
        token_ids=tuple(piece.ids),
        loss_mask=tuple(piece.mask),
        rollout_logprobs=tuple(piece.logprobs),
        advantages=tuple(
            advantage * w if m else 0.0 for m, w in zip(piece.mask, piece.weights, strict=True)
        ),
        weights=tuple(piece.weights),
        spans=tuple(piece.spans),
    )


def _with_prefixes(samples: list[Sample], offset: int) -> list[Sample]:
    """Note for each sample of a group the earlier one that it shares the longest prefix with."""
    noted = samples[:1]
    for i, sample in enumerate(samples[1:], start=1):
        lengths = [_common(sample.token_ids, other.token_ids) for other in samples[:i]]
        longest = max(lengths)
        parent = (offset + lengths.index(longest), longest) if longest else None
        noted.append(evolve(sample, shared_prefix=parent))
    return noted


def _common(a: Ids, b: Ids) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:  # tuple slices compare at C speed: bisect instead of walking
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
