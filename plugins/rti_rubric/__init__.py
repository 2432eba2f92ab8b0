"""A Validator without a language model: rules over what happened.

A rule of one's own is a small function in a plug-in file, registered under a name:

    from rti_rubric import rule
    from rti import Diagnosis

    @rule("empty-turn")
    def empty_turn(turn, history, evidence):
        if not turn.message.content and not turn.message.tool_calls:
            return Diagnosis(True, "empty-turn", "Say or do something.")
        return None

and then `validator.rules = ["foreign-tool", "empty-turn"]`.

Some rules read what the environment declares in `Evidence.facts`: see
`rti_rubric.evidence_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_rubric import evidence_rules  # noqa: F401 (registers its rules)
from rti_rubric.rules import NEEDS_OBSERVATIONS, RULES, Rule, rule
from rti_rubric.validator import RubricValidator

__all__ = ["NEEDS_OBSERVATIONS", "RULES", "RubricValidator", "Rule", "rule"]


@hookimpl
def rti_validators() -> Mapping[str, Any]:
    """Validators by name."""
    return {"rubric": RubricValidator}
