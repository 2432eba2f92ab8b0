"""Final ids that nothing had shown: the mark of a policy that was taught answers, not steps.

A correction that acts on privileged knowledge succeeds in training. What it teaches is to give an
id without looking it up; where nobody whispers the answer, that becomes an id made up. Rewards and
perplexities look healthy meanwhile, so every run counts such ids.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from rti.types import Message, Rollout

WINDOW = 5
"""Steps whose final ids are counted together, at the run's beginning and now."""
MARGIN = 0.1
"""A share must rise by more than this to be worth a warning, and again by as much for another."""
DEVIATIONS = 3.0
"""… and by more than so many standard errors of the difference of the two shares."""


def final_ids(messages: Sequence[Message]) -> list[tuple[str, bool]]:
    """Id-like values of a conversation's last tool call, each with whether it was made up.

    Id-like is a string argument of one word that has a digit in it: k12, #W5918442, 2025-05-16.
    It is made up when no earlier message but the assistant's own holds it as a whole word.
    """
    calls = [i for i, m in enumerate(messages) if m.role == "assistant" and m.tool_calls]
    if not calls:
        return []
    shown = "\n".join(_text(m) for m in messages[: calls[-1]] if m.role != "assistant")
    found = dict.fromkeys(
        value for call in messages[calls[-1]].tool_calls for value in _ids(call.arguments)
    )
    return [(value, not _holds(shown, value)) for value in found]


def made_up_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """`made_up`, the share of final ids that were made up, and `made_up_values`, how many there
    were in all. The share is absent where there was none."""
    made = [flag for rollout in rollouts for _, flag in final_ids(rollout.messages)]
    counted = {"made_up_values": float(len(made))}
    return {"made_up": sum(made) / len(made), **counted} if made else counted


def _text(message: Message) -> str:
    calls = (str(dict(call.arguments)) for call in message.tool_calls)  # a user's own calls
    return "\n".join((message.content, *calls))


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        word = value.strip()
        if any(c.isdigit() for c in word) and not re.search(r"\s", word):
            yield word
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _ids(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _ids(inner)


def _holds(text: str, word: str) -> bool:
    """Whether `word` stands in `text` by itself: k1 does not stand in k12."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


@define
class Watch:
    """Says when the share of made-up final ids has climbed, step by step.

    Compared are the last `WINDOW` steps with the first ones; after a warning, with the first ones
    behind it. Few ids give a large standard error, so that chance does not fire it.
    """

    _first: deque[tuple[float, float]] = field(factory=deque, init=False)
    _last: deque[tuple[float, float]] = field(factory=lambda: deque(maxlen=WINDOW), init=False)

    def step(self, metrics: Mapping[str, float]) -> str:
        """Take a step's metrics; the warning if there is one, else ""."""
        values = metrics.get("made_up_values", 0.0)
        self._last.append((metrics.get("made_up", 0.0) * values, values))
        if len(self._first) < WINDOW:
            self._first.append(self._last[-1])
            return ""
        before, now = _share(self._first), _share(self._last)
        if not climbed(_total(self._first), _total(self._last)):
            return ""
        self._first.clear()
        return (
            f"Final ids that nothing in the conversation showed: {now:.0%} of the last {WINDOW} "
            f"steps', up from {before:.0%}. Corrections may be teaching answers instead of steps: "
            "read some (TurnRepaired in events.jsonl), and look at [verifier] and [veto]."
        )


def climbed(before: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether a share rose by more than `MARGIN` and `DEVIATIONS` standard errors.

    Args:
        before: (made up, all) of the earlier steps.
        now: the same of the later ones.
    """
    (made_0, all_0), (made_1, all_1) = before, now
    if not all_0 or not all_1:
        return False
    rise, pooled = made_1 / all_1 - made_0 / all_0, (made_0 + made_1) / (all_0 + all_1)
    error = math.sqrt(pooled * (1 - pooled) * (1 / all_0 + 1 / all_1))
    return rise > max(MARGIN, DEVIATIONS * error)


def _total(steps: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return math.fsum(made for made, _ in steps), math.fsum(count for _, count in steps)


def _share(steps: Sequence[tuple[float, float]]) -> float:
    made, count = _total(steps)
    return made / count if count else 0.0
