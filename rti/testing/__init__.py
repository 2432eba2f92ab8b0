"""For the tests of plug-in authors: Hypothesis strategies, and checks of the contracts.

    from rti.testing import check_gate

    def test_my_gate():
        check_gate(MyGate(tokens=32))

Every check raises an AssertionError that says in words which part of the contract broke. Needs
the extra `testing` (`pip install "rti-rl[testing]"`); `check_objective` needs torch as well.
The checks draw their examples from a fixed seed: they find the same faults every time.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401 - only to say what is missing
except ModuleNotFoundError as error:  # pragma: no cover - depends on what is installed
    raise ModuleNotFoundError(
        'rti.testing needs Hypothesis: pip install "rti-rl[testing]"', name=error.name
    ) from error

from rti.testing.environment import check_environment
from rti.testing.numbers import check_gate, check_objective, check_trigger, check_weighter
from rti.testing.renderer import check_renderer
from rti.testing.roles import check_corrector, check_validator, check_verifier
from rti.testing.strategies import (
    Case,
    cases,
    corrections,
    evidence,
    groups,
    histories,
    ids,
    interventions,
    logprobs,
    messages,
    privileged,
    rollouts,
    tasks,
    texts,
    tool_calls,
    tools,
    turns,
)

__all__ = [
    "Case", "cases", "check_corrector", "check_environment", "check_gate", "check_objective",
    "check_renderer", "check_trigger", "check_validator", "check_verifier", "check_weighter",
    "corrections", "evidence", "groups", "histories", "ids", "interventions", "logprobs",
    "messages", "privileged", "rollouts", "tasks", "texts", "tool_calls", "tools", "turns",
]  # fmt: skip
