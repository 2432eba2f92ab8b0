"""tau2's reward on the live environment, and what may and may not be said about it.

tau2's own evaluator builds a second environment and replays the whole trajectory in it; the live
one is in that state already. Tests compare the two.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from rti import InfrastructureError
from rti_tau2.upstream import Upstream


@frozen
class Reward:
    """A task's reward: one factor (0 or 1) a basis, and every assertion with whether it holds."""

    breakdown: dict[str, float]
    assertions: tuple[tuple[str, bool], ...]

    @property
    def value(self) -> float:
        """The product over the task's reward basis."""
        product = 1.0
        for factor in self.breakdown.values():
            product *= factor
        return product


def reward(upstream: Upstream, task: Any, environment: Any, log: list[Any]) -> Reward:
    """Judge a state of `environment` and the `log` of messages that led to it.

    Raises:
        InfrastructureError: an assertion of tau2 crashes, or the task is judged by something
            this does not know.
    """
    criteria = task.evaluation_criteria
    if criteria is None:
        return Reward({}, ())
    # Assertions synchronise the two sides of the environment: never on the live one.
    judged = copy.deepcopy(environment)
    try:
        assertions = tuple(
            (a.func_name, bool(judged.run_env_assertion(a, raise_assertion_error=False)))
            for a in criteria.env_assertions or []
        )
        breakdown: dict[str, float] = {}
        for basis in criteria.reward_basis:
            if basis.value == "ENV_ASSERTION":
                breakdown[basis.value] = float(all(met for _, met in assertions))
            elif basis.value == "ACTION":
                actions = upstream.action_evaluator.calculate_reward(task, log)
                breakdown[basis.value] = float(actions.reward)
            else:
                raise InfrastructureError(
                    f"[environment] tau2: reward basis {basis.value!r} is not scored here:"
                    " choose a task of the telecom domain"
                )
    except InfrastructureError:
        raise
    except Exception as error:  # whatever tau2 raises here is its own crash, not the policy's
        raise InfrastructureError(f"tau2 cannot judge the episode: {error!r}") from error
    return Reward(breakdown, assertions)


def privileged(task: Any) -> Iterator[str]:
    """The facts of a task that no prompt whose output is trained on may hold.

    Its id (which names the faults), the ticket, the user's scenario, the injected faults, the
    gold actions with their arguments, and the arguments of its assertions.
    """
    yield task.id
    if task.ticket:
        yield task.ticket
    told = task.user_scenario.instructions
    if isinstance(told, str):
        yield told
    else:
        for part in (told.reason_for_call, told.known_info, told.task_instructions):
            if part:
                yield part
    state = task.initial_state
    for call in (state.initialization_actions if state else None) or []:
        yield _call(call.func_name, call.arguments)
    criteria = task.evaluation_criteria
    if criteria is None:
        return
    for action in criteria.actions or []:
        yield _call(action.name, action.arguments)
    for assertion in criteria.env_assertions or []:
        if assertion.arguments:
            yield ", ".join(f"{name}={value!r}" for name, value in assertion.arguments.items())
    yield from criteria.communicate_info or []


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
