"""The intervention funnel: from groups that all failed to what was trained on, and each loss."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rti.report.log import Look, RunLog

REASONS = 6
"""Reasons shown of one loss; the others are summed up."""

_STAGES: tuple[tuple[str, str, str, str, tuple[tuple[str, str], ...]], ...] = (
    # metric, name, what is counted, what it means, (stage, words) of what is lost before it
    ("groups", "groups", "groups", "rolled out", ()),
    ("groups_all_failed", "all failed", "groups", "no rollout succeeded", ()),
    ("groups_fired", "triggered", "groups", "the trigger asked for repair", ()),
    ("funnel/candidates", "candidates", "rollouts", "failed rollouts chosen for repair", ()),
    ("funnel/attempts", "looks", "looks", "a rollout may be looked at more than once", ()),
    (
        "funnel/flagged", "flagged", "looks", "the Validator named a harmful turn",
        (("unflagged", "no harmful turn found"), ("faulted", "infrastructure")),
    ),
    (
        "funnel/corrected", "corrected", "looks", "the Corrector wrote another turn",
        (("vetoed", "diagnosis vetoed"), ("uncorrected", "no correction")),
    ),
    (
        "funnel/verified", "verified", "looks", "every Verifier accepted it",
        (("rejected", "rejected"),),
    ),
    (
        "funnel/admitted", "gated in", "looks", "the gate let it through",
        (("gated", "stopped by the gate"),),
    ),
    (
        "funnel/succeeded", "succeeded", "looks", "the resumed rollout succeeded",
        (("failed", "resumed and failed"), ("unforkable", "could not be forked")),
    ),
    ("funnel/trained", "trained", "looks", "the repaired rollout entered its group", ()),
)  # fmt: skip


def funnel(logs: Sequence[RunLog]) -> list[dict[str, Any]]:
    """The stages over whole runs, summed; each with what was lost before it, and why.

    Counts are those of the steps; reasons come from the looks, which tell them one by one. Empty
    when no run ever looked at a turn.
    """
    totals = Counter[str]()
    for log in logs:
        for step in log.steps:
            for metric, *_ in _STAGES:
                totals[metric] += int(step.metrics.get(metric, 0))
    if not totals["funnel/attempts"]:
        return []
    why: dict[str, Counter[str]] = {}
    for log in logs:
        for look in log.looks:
            why.setdefault(look.stage, Counter())[_reason(look)] += 1
    rows: list[dict[str, Any]] = []
    before: tuple[str, int] | None = None
    for metric, name, unit, words, lost in _STAGES:
        count = totals[metric]
        fell = before[1] - count if before is not None and before[0] == unit else 0
        losses = [_loss(stage, said, why.get(stage, Counter())) for stage, said in lost]
        told = sum(loss["count"] for loss in losses)
        if fell > told and metric == "funnel/trained":
            losses.append({"words": "succeeded, but not taken", "count": fell, "reasons": []})
        elif fell > told and losses:
            losses[0]["count"] += fell - told  # looks that flag nothing are counted, never told
        kept = [loss for loss in losses if loss["count"]]
        rows.append({"name": name, "unit": unit, "words": words, "count": count, "lost": kept})
        before = (unit, count)
    return rows


def unread(logs: Sequence[RunLog]) -> dict[str, int]:
    """Answers of roles that could not be read, by kind, over whole runs."""
    found = Counter[str]()
    for log in logs:
        for step in log.steps:
            for metric, value in step.metrics.items():
                if metric.startswith("unparsed/") and value:
                    found[metric.removeprefix("unparsed/")] += int(value)
    # "diagnosis/empty" is counted under "diagnosis" too.
    split = {name.partition("/")[0] for name in found if "/" in name}
    return {name: n for name, n in sorted(found.items()) if name not in split}


def _loss(stage: str, words: str, reasons: Counter[str]) -> dict[str, Any]:
    shown: list[tuple[str, int]] = [
        (reason, n) for reason, n in reasons.most_common(REASONS) if reason
    ]
    rest = reasons.total() - sum(n for _, n in shown) - reasons[""]
    if rest:
        shown.append((f"{len(reasons) - len(shown) - ('' in reasons)} other reasons", rest))
    if len(shown) == 1 and shown[0][0].startswith("the resumed rollout did not succeed"):
        shown = []  # says what the stage says
    return {"words": words, "stage": stage, "count": reasons.total(), "reasons": shown}


def _reason(look: Look) -> str:
    """A reason without what is of that one case: quoted words and measured numbers."""
    gated = re.fullmatch(r"(\S+) \S+ > (\S+)", look.reason)  # "perplexity 14.78 > 5"
    if gated:
        return f"{gated[1]} above {gated[2]}"
    text = re.sub(r"'[^']*'|\"[^\"]*\"|“[^”]*”", "…", look.reason)
    return re.sub(r"\d[\d.,]*", "…", text)[:120]
