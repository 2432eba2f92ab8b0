"""What a step is counted by: groups as they were sampled, the funnel of repairs, the teacher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rti.made_up import made_up_metrics
from rti.teacher import DEMONSTRATIONS, LOGPROBS
from rti.types import Batch, Group, Intervention, Stage


def group_metrics(
    drafts: Sequence[Group], groups: Sequence[Group], fired: Sequence[bool]
) -> dict[str, float]:
    """Judged on the drafts, before intervention, except where the name says otherwise.

    Groups that others took the place of are among the drafts.
    """
    rollouts = [r for g in drafts for r in g.rollouts]
    turns = [t for r in rollouts for t in r.turns]
    return {
        "groups": float(len(drafts)),
        "groups_all_failed": float(sum(g.all_failed for g in drafts)),
        "groups_all_succeeded": float(
            sum(bool(g.rollouts) and all(r.success for r in g.rollouts) for g in drafts)
        ),
        "groups_fired": float(sum(fired)),
        "rollouts": float(len(rollouts)),
        "faults": float(sum(g.faults for g in drafts)),
        "pass@1": _mean([float(r.success) for r in rollouts]),
        "pass@G": _mean([float(any(r.success for r in g.rollouts)) for g in drafts if g.rollouts]),
        "outcome": _mean([r.outcome or 0.0 for r in rollouts]),
        "truncated": _mean([float(r.truncated) for r in rollouts]),
        "turns": len(turns) / max(1, len(rollouts)),
        "turns_out_of_tokens": _mean([float(t.finish == "length") for t in turns]),
        "rollouts_corrected": float(sum(r.corrected for g in groups for r in g.rollouts)),
        **made_up_metrics(rollouts),
    }


REACHED: Mapping[str, tuple[Stage, ...]] = {
    "flagged": ("vetoed", "uncorrected", "rejected", "gated", "unforkable", "failed", "succeeded"),
    "corrected": ("rejected", "gated", "unforkable", "failed", "succeeded"),
    "verified": ("gated", "unforkable", "failed", "succeeded"),
    "admitted": ("unforkable", "failed", "succeeded"),
    "succeeded": ("succeeded",),
}
"""For each step of the funnel, the stages of the records that came through it."""


def funnel(records: Sequence[Intervention], candidates: int) -> dict[str, float]:
    """How many records came how far, and the perplexities seen at the gate.

    `mean_ppl` is over corrections that reached the gate; it is absent when none did.
    """
    import torch

    from rti.ops import perplexity

    stages = Counter(r.stage for r in records)
    counts = {
        f"funnel/{name}": float(sum(stages[s] for s in through))
        for name, through in REACHED.items()
    }
    scored = [perplexity(torch.tensor(r.rollout_logprobs)) for r in records if r.rollout_logprobs]
    unread = Counter[str]()
    for record in records:
        judged = [("diagnosis", record.diagnosis), *(("verdict", v) for v in record.verdicts)]
        for name, answer in judged:
            if answer is not None and not answer.parsed:
                unread[name] += 1
                unread[f"{name}/{answer.problem or 'other'}"] += 1
        if record.stage == "uncorrected":
            kind = record.reason.partition(":")[0].replace(" ", "-")
            unread[f"correction/{kind[:40]}"] += 1
    return {
        "funnel/candidates": float(candidates),
        "funnel/attempts": float(len(records)),
        **counts,
        "funnel/trained": float(sum(r.trained for r in records)),
        "funnel/faulted": float(stages["faulted"]),
        "corrections_without_numerator": float(
            sum(r.weights is not None and r.corrector_logprobs is None for r in records)
        ),
        "funnel/vetoed": float(stages["vetoed"]),
        "unparsed/diagnosis": 0.0,
        "unparsed/verdict": 0.0,
        **{f"unparsed/{name}": float(n) for name, n in sorted(unread.items())},
        **({"mean_ppl": _mean(scored)} if scored else {}),
    }


def teacher_metrics(batch: Batch, aux: Mapping[str, Any]) -> dict[str, float]:
    """What the teacher gave, of what the objective needs: nothing without a teacher.

    `demonstrations` and `demonstrations_missing` count groups with a rollout of the teacher's and
    without. `teacher_kl` is the mean of log π_roll − log q over the tokens in the batch that the
    policy sampled: an estimate of the KL divergence of policy and teacher, in nats.
    """
    found: dict[str, float] = {}
    if DEMONSTRATIONS in aux:
        shown = [any(r.demonstration for r in g.rollouts) for g in batch.groups if g.rollouts]
        found["demonstrations"] = float(sum(shown))
        found["demonstrations_missing"] = float(len(shown) - sum(shown))
    if LOGPROBS in aux:
        gaps = [
            sample.rollout_logprobs[t] - teacher_T[t]
            for sample, teacher_T in zip(batch.samples, aux[LOGPROBS], strict=True)
            for span in sample.spans
            if span.provenance.kind == "policy"
            for t in range(span.start, span.stop)
        ]
        found.update({"teacher_kl": _mean(gaps)} if gaps else {})
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
