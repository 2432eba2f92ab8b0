"""What a run says as it goes: typed events for Reporters.

`events.jsonl` holds one of them a line, `event` naming the class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen


@frozen
class RunStarted:
    """A run began, or went on from a checkpoint at `step`. `policy` is its policy in words.

    It ends after `steps`, or when `token_budget` is spent, if there is one (0: there is none).
    """

    out: str
    steps: int
    step: int
    seed: int
    versions: Mapping[str, str] = field(factory=dict)
    plugins: Mapping[str, str] = field(factory=dict)
    policy: str = ""
    token_budget: int = 0


@frozen
class StepDone:
    """One step is over. `words` says in plain language what it learned from, or why nothing."""

    step: int
    policy_version: int
    metrics: Mapping[str, float]
    words: str


@frozen
class TurnRepaired:
    """One look at one turn, in words: how far it came, and why it stopped there.

    `tokens` are those of the correction, one weight each once it is weighed; `after` is what the
    resumed rollout saw and said behind it.
    """

    step: int
    task: str
    family: str
    rollout: int
    attempt: int
    turn: int | None
    stage: str
    reason: str
    history: str = ""
    draft: str = ""
    diagnosis: str = ""
    correction: str = ""
    verdicts: Sequence[str] = ()
    tokens: Sequence[str] = ()
    draft_tokens: Sequence[str] = ()
    after: str = ""
    perplexity: float | None = None
    gates: Sequence[str] = ()
    threshold: float | None = None
    weights: Sequence[float] = ()
    outcome: float | None = None
    trained: bool = False
    provenance: Mapping[str, Any] = field(factory=dict)


@frozen
class Evaluated:
    """The policy was evaluated, without intervention."""

    step: int
    policy_version: int
    metrics: Mapping[str, float]
    families: Mapping[str, Mapping[str, float]] = field(factory=dict)


@frozen
class CheckpointSaved:
    """A checkpoint was written: a run resumed from it begins at `step`."""

    step: int
    path: str


@frozen
class RunEnded:
    """The run is over. `status` is "done", "interrupted" or "failed"."""

    step: int
    status: str
    seconds: float
    tokens: float
    reason: str = ""


Event = RunStarted | StepDone | TurnRepaired | Evaluated | CheckpointSaved | RunEnded


def as_record(event: Any) -> dict[str, Any]:
    """An event as a strict JSON object: NaN and infinities (δ = inf, say) become null."""
    record: dict[str, Any] = _strict(asdict(event))
    return {"event": type(event).__name__, **record}


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _strict(inner) for name, inner in value.items()}
    return [_strict(inner) for inner in value] if isinstance(value, list | tuple) else value
