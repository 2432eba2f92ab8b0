"""Rows of an update: samples with their scales, and what else the objective is told a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from rti import Batch, Floats, Objective, RunError, Sample
from rti_hf.forward import chosen_logprobs, cut

CARRIED = ("teacher", "demonstrations")
"""What a batch brings with it, in `aux`."""
OLD = "old"
"""What is computed here: logprobs under the weights before the batch's first update."""
KNOWN = frozenset((*CARRIED, OLD))


@frozen
class Row:
    """A sample, what each of its trained tokens counts in the loss, and its extras by name."""

    sample: Sample
    scale: float
    extras: Mapping[str, Floats] = field(factory=dict)

    def scales(self) -> list[float]:
        """The scale, once a token."""
        return [self.scale] * len(self.sample.token_ids)

    def sampled_by_policy(self) -> list[bool]:
        """Which tokens have the rollout logprob of a policy: all but demonstrations."""
        shown = self.extras.get("demonstrations")
        return [True] * len(self.sample.token_ids) if shown is None else [not d for d in shown]


def rows_of(batch: Batch, objective: Objective) -> list[Row]:
    """A row for each sample with a token in the loss.

    Raises:
        RunError: when the batch lacks what the objective needs.
    """
    from rti.ops import token_scales

    scales_S = token_scales(
        [sum(s.loss_mask) for s in batch.samples],
        [s.rollout for s in batch.samples],
        objective.aggregate,
        objective.constant_length,
    ).tolist()
    carried = {name: _carried(batch, name) for name in objective.needs if name in CARRIED}
    return [
        Row(sample, scale, {name: values[i] for name, values in carried.items()})
        for i, (sample, scale) in enumerate(zip(batch.samples, scales_S, strict=True))
        if any(sample.loss_mask)
    ]


def _carried(batch: Batch, name: str) -> Sequence[Floats]:
    values: Sequence[Floats] = batch.aux.get(name, ())
    if [len(row) for row in values] != [len(s.token_ids) for s in batch.samples]:
        raise RunError(
            f"[objective] needs {name!r}, but the batch's aux[{name!r}] does not hold one number "
            "a token of every sample. `Collector.collect` puts it there when it is given this very "
            "objective."
        )
    return values


def with_old(rows: Sequence[Row], model: Any, budget: int) -> list[Row]:
    """The rows with π_old, from the very passes that an update makes: the first ratio is 1."""
    import torch

    done: list[Row] = []
    with torch.no_grad():
        for part in cut([len(row.sample.token_ids) for row in rows], budget):
            own = [rows[i] for i in part]
            masks_B = [row.sample.loss_mask for row in own]
            logprobs_N = chosen_logprobs(model, [row.sample.token_ids for row in own], masks_B)
            waiting = iter(logprobs_N.tolist())
            for row, mask in zip(own, masks_B, strict=True):
                old = tuple(next(waiting) if m else 0.0 for m in mask)
                done.append(evolve(row, extras={**row.extras, OLD: old}))
    return done
