"""What a step learned from, or why it learned nothing, in plain words."""

from __future__ import annotations

from collections import Counter

from rti.types import Batch, Intervention

_LOST = {
    "unflagged": "had no turn flagged",
    "vetoed": "had a diagnosis vetoed",
    "uncorrected": "got no correction",
    "unforkable": "could not be forked",
    "faulted": "met an infrastructure fault",
    "failed": "resumed and failed again",
}


def explain(batch: Batch) -> str:
    """One or two sentences on a batch, e.g. for the console."""
    m = batch.metrics
    groups = int(m.get("groups", 0))
    signal, trained = int(m.get("groups_with_signal", 0)), int(m.get("rollouts_corrected", 0))
    notes = "".join(f" {note}" for note in batch.notes)
    if signal:
        words = f"{signal} of {_many(groups, 'group')} {'gives' if signal == 1 else 'give'} signal"
        if trained:
            words += f", with {_many(trained, 'repaired rollout')}"
        return words + "." + notes
    failed, solved = int(m.get("groups_all_failed", 0)), int(m.get("groups_all_succeeded", 0))
    words = f"No signal: {failed} of {_many(groups, 'group')} all failed"
    if solved:
        words += f", {solved} all succeeded"
    parts = losses(batch.interventions)
    if not m.get("groups_fired"):
        words += "; no intervention was triggered"
    elif parts:
        words += "; no correction survived: " + ", ".join(parts)
    unread = int(m.get("unparsed/diagnosis", 0))
    if unread:
        words += f" ({unread} with diagnoses that could not be read)"
    return words + ". The weights stay as they are." + notes


def losses(records: tuple[Intervention, ...]) -> list[str]:
    """Why attempts at a repair came to nothing, the commonest reason first: "5 over δ = 5"."""
    several = len({v.by for r in records for v in r.verdicts}) > 1
    lost = Counter(lost_to(r, several) for r in records if not r.trained)
    return [f"{number} {why}" for why, number in lost.most_common()]


def lost_to(record: Intervention, several: bool = False) -> str:
    """What ended one attempt that was not trained on; `several` verifiers are told by name."""
    if record.stage == "rejected":
        refused = [v for v in record.verdicts if not v.accepted]
        if not refused:
            return "unusable as written"
        named = f"the Verifier {refused[-1].by!r}" if several and refused[-1].by else "the Verifier"
        return f"rejected by {named}"
    if record.stage == "gated":
        refusing = [d for d in record.decisions if not d.admitted]
        if refusing and refusing[0].by == "perplexity":
            return f"over δ = {refusing[0].threshold:g}"
        if refusing and refusing[0].by:
            return f"stopped by the gate {refusing[0].by!r}"
        return "stopped by a gate"
    if record.stage == "succeeded":
        return "succeeded, but another attempt was taken"
    return _LOST[record.stage]


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
