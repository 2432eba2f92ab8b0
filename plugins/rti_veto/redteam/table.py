"""The outcome in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rti_veto.document import leaves
from rti_veto.redteam.cases import KINDS
from rti_veto.redteam.judge import Count, Judged, count


def printed(judged: Sequence[Judged], which: str, seed: int, examples: int) -> Iterator[str]:
    """A table by kind, failures, and as the last line the two counts."""
    yield f"set {which}, seed {seed}: {len(judged)} cases"
    yield f"{'kind':28}{'missed':>10}{'falsely refused':>18}"
    for kind in KINDS:
        yield f"{kind:28}{count(judged, True, kind)!s:>10}{count(judged, False, kind)!s:>18}"
    missed, refused = count(judged, True), count(judged, False)
    yield f"{'all':28}{missed!s:>10}{refused!s:>18}"
    yield f"95 % interval (Wilson): missed {_range(missed)}, falsely refused {_range(refused)}"
    for kind in KINDS:
        wrong = [j for j in judged if j.wrong and j.case.kind == kind]
        for one in wrong[:examples]:
            word = "missed" if one.case.leak else "falsely refused"
            yield f"{word} ({kind}, {one.case.scene.world}): {_text(one)}"
            if one.reason:
                yield f"    {one.reason}"
    yield f"missed {missed}, falsely refused {refused}"


def as_dict(judged: Sequence[Judged], which: str, seed: int) -> dict[str, Any]:
    """The same for a program; failures in full."""
    return {
        "set": which,
        "seed": seed,
        "missed": _count(count(judged, True)),
        "falsely_refused": _count(count(judged, False)),
        "kinds": {
            kind: {
                "missed": _count(count(judged, True, kind)),
                "falsely_refused": _count(count(judged, False, kind)),
            }
            for kind in KINDS
        },
        "failures": [
            {
                "kind": j.case.kind,
                "leak": j.case.leak,
                "world": j.case.scene.world,
                "task": j.case.scene.task,
                "value": j.case.value,
                "correction": _text(j),
                "reason": j.reason,
            }
            for j in judged
            if j.wrong
        ],
    }


def _count(one: Count) -> dict[str, Any]:
    low, high = one.interval
    return {"wrong": one.wrong, "all": one.all, "low": round(low, 4), "high": round(high, 4)}


def _range(one: Count) -> str:
    low, high = one.interval
    return f"{100 * low:.1f}-{100 * high:.1f} %"


def _text(one: Judged) -> str:
    message = one.case.message
    calls = [f"{c.name}({', '.join(leaves(c.arguments))})" for c in message.tool_calls]
    text = " | ".join(filter(None, (message.content, message.reasoning, *calls)))
    return f"{text[:160]!a} from {one.case.value[:80]!a}"
