"""The Validator that applies the rules."""

from __future__ import annotations

import difflib
from typing import Any

from attrs import evolve, frozen

from rti import Diagnosis, Evidence, History, Turn, not_empty, option
from rti_rubric.rules import NEEDS_OBSERVATIONS, RULES

DEFAULT = (
    "foreign-tool", "repeated-failure", "unmet-rubric", "no-exact-match", "premature-handoff"
)  # fmt: skip
"""The first two judge by what happened; the others only where the environment declares facts."""


BY_OBSERVATION = frozenset({"foreign-tool", "repeated-failure"})
"""Built-in rules that wait for what came back; others say so when they are asked."""


def _known(value: Any) -> str | None:
    """Names of registered rules only."""
    for name in value:
        if not isinstance(name, str) or name not in RULES:
            close = difflib.get_close_matches(str(name), RULES, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            known = ", ".join(map(repr, sorted(RULES)))
            return f"names of known rules; {name!r} is none of {known}{hint}"
    return None


def _a_list(value: Any) -> str | None:
    """A list: a lone string would be read as letters."""
    return None if isinstance(value, (list, tuple)) else "a list of rule names"


@frozen
class RubricValidator:
    """Flags a turn by rules, without a language model. The first rule that objects is the word.

    When none objects but a rule needed observations that are not there yet (`when =
    "before_step"`), the diagnosis is not harmful and of kind "needs-observations".
    """

    rules: list[str] = option(
        list(DEFAULT),
        "Rules by name, in the order in which they are asked.",
        _a_list,
        not_empty,
        _known,
    )

    @property
    def needs_observations(self) -> bool:
        """Whether some of its rules judge by what came back after the turn."""
        return bool(set(self.rules) & BY_OBSERVATION)

    async def validate(self, turn: Turn, history: History, evidence: Evidence) -> Diagnosis:
        """Ask each rule; `raw` of the diagnosis names the rules behind it."""
        waiting: list[str] = []
        for name in self.rules:
            diagnosis = RULES[name](turn, history, evidence)
            if diagnosis is None:
                continue
            if diagnosis.harmful:
                return diagnosis if diagnosis.raw else evolve(diagnosis, raw=name)
            if diagnosis.kind == NEEDS_OBSERVATIONS.kind:
                waiting.append(name)
        if waiting:
            return evolve(NEEDS_OBSERVATIONS, raw=", ".join(waiting))
        return Diagnosis(False)
