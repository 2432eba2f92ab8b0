"""What a step learned from, or why it learned nothing, in plain words."""

from __future__ import annotations

from collections import Counter

from rti.types import Batch

_LOST = {
    "unflagged": "had no turn flagged",
    "vetoed": "had a diagnosis vetoed",
    "uncorrected": "got no correction",
    "rejected": "rejected by the Verifier",
    "gated": "stopped by a gate",
    "unforkable": "could not be forked",
    "faulted": "met an infrastructure fault",
    "failed": "resumed and failed again",
}


def explain(batch: Batch) -> str:
    """One or two sentences on a batch, e.g. for the console."""
    m = batch.metrics
    groups, failed = int(m.get("groups", 0)), int(m.get("groups_all_failed", 0))
    signal = int(m.get("groups_with_signal", 0))
    trained = int(m.get("rollouts_corrected", 0))
    lost = Counter(r.stage for r in batch.interventions if not r.trained)
    parts = [f"{n} {_LOST[stage]}" for stage, n in lost.most_common() if stage in _LOST]
    notes = "".join(f" {note}" for note in batch.notes)
    if signal:
        words = f"{signal} of {groups} groups give signal"
        if trained:
            words += f", with {trained} repaired rollout" + "s" * (trained > 1)
        return words + "." + notes
    solved = int(m.get("groups_all_succeeded", 0))
    words = f"No signal: {failed} of {groups} groups all failed"
    if solved:
        words += f", {solved} all succeeded"
    if not m.get("groups_fired"):
        words += "; no intervention was triggered"
    elif parts:
        words += "; no correction survived: " + ", ".join(parts)
    unread = int(m.get("unparsed/diagnosis", 0))
    if unread:
        words += f" ({unread} with diagnoses that could not be read)"
    return words + ". The weights stay as they are." + notes
