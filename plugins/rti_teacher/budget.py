"""What a run may ask of its teachers, and what it has asked: one budget, kept on disk.

Hard: a request is counted, and what it may cost at most is set aside, on disk, before it is sent.
So neither requests under way nor a run that is killed and goes on with `--resume` spend more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, define, field, fields_dict, frozen

from rti import InfrastructureError, RunError
from rti.checkpoint import write_text
from rti.config import TeacherConfig

FILE = "teacher-usage.json"
MILLION = 1e6


@frozen
class Tokens:
    """Tokens of a prompt and of the reply to it, counted or at most."""

    prompt: int = 0
    reply: int = 0

    @property
    def all(self) -> int:
        """Both together."""
        return self.prompt + self.reply


@define
class Usage:
    """Counters that only grow. `estimated` counts replies whose endpoint told no token counts."""

    requests: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    retries: int = 0
    faults: int = 0
    estimated: int = 0


@define
class Budget:
    """The one budget of a run, over all its teachers.

    `owner` is what the run's roles have in common; holding it keeps its identity taken.
    """

    config: TeacherConfig
    path: Path | None = None
    owner: Any = field(default=None, repr=False)
    used: Usage = field(factory=Usage)
    notes: list[str] = field(factory=list)
    _in_flight: list[Tokens] = field(init=False, factory=list)
    _waiting: list[asyncio.Future[None]] = field(init=False, factory=list, repr=False)
    _refused: str = field(init=False, default="")

    def __attrs_post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.used = _read(self.path)

    @property
    def limited(self) -> bool:
        """Whether tokens must be counted before a request."""
        return bool(self.config.max_tokens or self.config.max_cost)

    @property
    def spent(self) -> str:
        """Why nothing more may be asked, or "". What is only set aside is not spent yet."""
        settled = Tokens(self.used.prompt_tokens, self.used.reply_tokens)
        why = self._refused or self._over(settled, Tokens())
        return f"the teacher's budget is spent: {why}" if why else ""

    @property
    def usage(self) -> Mapping[str, float]:
        """The counters by the names that metrics have, and the cost where prices are given."""
        counts = {f"teacher/{name}": float(n) for name, n in asdict(self.used).items()}
        if self.config.price_in or self.config.price_out:
            counts["teacher/cost"] = self._cost(self._counted())
        return counts

    async def reserve(self, need: Tokens) -> None:
        """Count a request and set aside what it may take; waits for what is under way if need be.

        Raises:
            InfrastructureError: when the budget does not stretch to it.
        """
        while why := self._refused or self._over(self._counted(), need):
            if not self._in_flight or self._requests_over():
                self._refused = why
                self.save()
                raise InfrastructureError(f"{self.spent}.")
            # What is set aside for a request is more than it takes, as a rule.
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self.used.requests += 1
        self._in_flight.append(need)
        self.save()

    def settle(self, need: Tokens, took: Tokens | None) -> None:
        """A request is over. Without word of what it took it counts in full."""
        self._in_flight.remove(need)
        took = need if took is None else took
        self.used.prompt_tokens += took.prompt
        self.used.reply_tokens += took.reply
        self.save()
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    def save(self) -> None:
        """Write the counters; what is under way counts in full, should the run die now."""
        if self.path is None:
            return
        counted = self._counted()
        counts = {
            **asdict(self.used), "prompt_tokens": counted.prompt, "reply_tokens": counted.reply
        }  # fmt: skip
        record = {**counts, "cost": self._cost(counted), "spent": self.spent, "notes": self.notes}
        try:
            write_text(self.path, json.dumps(record, indent=2) + "\n")
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error}): without it the teacher's budget would "
                "not outlive this run. Make room, or choose another [run] out."
            ) from error

    def _counted(self) -> Tokens:
        """Spent and set aside."""
        return Tokens(
            self.used.prompt_tokens + sum(t.prompt for t in self._in_flight),
            self.used.reply_tokens + sum(t.reply for t in self._in_flight),
        )

    def _cost(self, tokens: Tokens) -> float:
        at = self.config
        return (tokens.prompt * at.price_in + tokens.reply * at.price_out) / MILLION

    def _requests_over(self) -> bool:
        return bool(self.config.max_requests) and self.used.requests >= self.config.max_requests

    def _over(self, counted: Tokens, need: Tokens) -> str:
        """Why a request that needs so much on top of what is counted cannot be made, or ""."""
        at, tokens, cost = self.config, counted.all, self._cost(counted)
        if self._requests_over():
            return f"{self.used.requests} of {at.max_requests} requests ([teacher] max_requests)"
        if at.max_tokens and (tokens >= at.max_tokens or tokens + need.all > at.max_tokens):
            more = f", and the next request may take {need.all}" if tokens < at.max_tokens else ""
            return f"{tokens} of {at.max_tokens} tokens ([teacher] max_tokens){more}"
        next_ = self._cost(need)
        if at.max_cost and (cost >= at.max_cost or cost + next_ > at.max_cost):
            more = f", and the next request may cost {next_:.4g}" if cost < at.max_cost else ""
            return f"{cost:.4g} of {at.max_cost:g} in money ([teacher] max_cost){more}"
        return ""


def _read(path: Path) -> Usage:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        counts = {name: record[name] for name in fields_dict(Usage)}
        if any(type(n) is not int or n < 0 for n in counts.values()):
            raise ValueError("a counter is no number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} cannot be read ({type(error).__name__}: {error}): it holds what this run has "
            "spent on its teacher. Delete it to count from 0, or choose another [run] out."
        ) from error
    return Usage(**counts)
