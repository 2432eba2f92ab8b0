"""Interventions → events: token ids back into words a person can read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attrs import asdict

from rti.events import TurnRepaired
from rti.interfaces import Renderer
from rti.types import Decision, Floats, Intervention, Verdict


def repaired_turns(
    interventions: Sequence[Intervention], step: int, renderer: Renderer
) -> Iterator[TurnRepaired]:
    """One event for every record in which a turn was flagged, or a fault met."""
    for record in interventions:
        if record.stage != "unflagged":
            yield repaired_turn(record, step, renderer)


def repaired_turn(record: Intervention, step: int, renderer: Renderer) -> TurnRepaired:
    """An intervention in words."""
    decode = renderer.decode
    correction, draft, gated = record.correction, record.draft, record.decisions
    return TurnRepaired(
        step=step,
        task=record.task.id,
        family=record.task.family,
        rollout=record.rollout,
        attempt=record.attempt,
        turn=draft.index if draft else None,
        stage=record.stage,
        reason=record.reason,
        history=decode(record.history.prompt_ids) if record.history else "",
        draft=decode(draft.completion_ids) if draft else "",
        diagnosis=_diagnosis(record),
        correction=decode(correction.completion_ids) if correction else "",
        verdicts=[_verdict(v) for v in record.verdicts],
        tokens=[decode([i]) for i in correction.completion_ids] if correction else (),
        draft_tokens=[decode([i]) for i in draft.completion_ids] if draft else (),
        after=_after(record, renderer),
        perplexity=_perplexity(record.rollout_logprobs) if record.rollout_logprobs else None,
        gates=[_decision(d) for d in gated],
        threshold=gated[0].threshold if gated else None,
        weights=record.weights or (),
        outcome=record.outcome,
        trained=record.trained,
        provenance=asdict(correction.provenance) if correction else {},
    )


def _after(record: Intervention, renderer: Renderer) -> str:
    """What came back to the correction, and the rollout's turns from there on."""
    if record.resumed is None or record.draft is None:
        return ""
    parts: list[str] = []
    for turn in record.resumed.turns[record.draft.index :]:
        if turn.index > record.draft.index:
            parts.append(renderer.decode(turn.completion_ids))
        parts += [f"[{m.role}] {m.content}" for m in turn.observations or ()]
    return "\n".join(parts)


def _perplexity(logprobs_T: Floats) -> float:
    mean = -math.fsum(logprobs_T) / len(logprobs_T)
    return math.exp(mean) if mean < 700 else math.inf


def _decision(decision: Decision) -> str:
    sign = "≤" if decision.admitted else ">"
    compared = f"{decision.by}: {decision.value:.4g} {sign} {decision.threshold:g}"
    return compared if decision.admitted else f"{compared}, refused"


def _verdict(verdict: Verdict) -> str:
    said = "accepted" if verdict.accepted else "rejected"
    return f"{verdict.by}: {said}" + (f" ({verdict.reason})" if verdict.reason else "")


def _diagnosis(record: Intervention) -> str:
    found = record.diagnosis
    if found is None:
        return ""
    return ": ".join(filter(None, (found.kind, found.direction)))
