"""tau2's reward on the live environment, and what may and may not be said about it.

tau2's own evaluator builds a second environment and replays the whole trajectory in it; the live
one is in that state already. Tests compare the two.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from attrs import frozen

from rti import InfrastructureError
from rti_tau2.simulator import Simulator, gold_fingerprint
from rti_tau2.upstream import Upstream, catalogue, load


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


def reward(
    upstream: Upstream, domain: str, task: Any, simulator: Simulator, log: list[Any]
) -> Reward:
    """Judge a state of `simulator` and the `log` of messages that led to it.

    Raises:
        InfrastructureError: an assertion of tau2 crashes, or the task is judged by something
            this does not know.
    """
    criteria = task.evaluation_criteria
    if criteria is None:
        return Reward({}, ())
    try:
        assertions = _assertions(criteria, simulator)
        breakdown: dict[str, float] = {}
        for basis in criteria.reward_basis:
            name = basis.value
            if name == "ENV_ASSERTION":
                breakdown[name] = float(all(met for _, met in assertions))
            elif name == "DB":
                gold = gold_fingerprint(domain, task.id)
                breakdown[name] = float(simulator.fingerprint() == gold)
            elif name == "ACTION":
                breakdown[name] = float(
                    upstream.action_evaluator.calculate_reward(task, log).reward
                )
            elif name == "COMMUNICATE":
                told = upstream.communicate_evaluator.calculate_reward(task, log)
                breakdown[name] = float(told.reward)
            else:
                raise InfrastructureError(
                    f"[environment] tau2: task {task.id!r} is judged by {name}, which needs a"
                    " language model and is not scored here: leave the task out"
                )
    except InfrastructureError:
        raise
    except Exception as error:  # whatever tau2 raises here is its own crash, not the policy's
        raise InfrastructureError(f"tau2 cannot judge the episode: {error!r}") from error
    return Reward(breakdown, assertions)


def _assertions(criteria: Any, simulator: Simulator) -> tuple[tuple[str, bool], ...]:
    if not criteria.env_assertions:
        return ()
    # Assertions synchronise the two sides of the environment: never on the live one.
    judged = copy.deepcopy(simulator.environment)
    return tuple(
        (a.func_name, bool(judged.run_env_assertion(a, raise_assertion_error=False)))
        for a in criteria.env_assertions
    )


@cache
def idle_wins(domain: str, tau2_id: str) -> bool:
    """Whether an agent that does and says nothing is rewarded: such a task teaches nothing.

    In retail and airline these are tasks whose gold actions change no record.
    """
    upstream, task = load(), catalogue(domain).tasks[tau2_id]
    greeting = upstream.message.AssistantMessage(role="assistant", content=upstream.greeting)
    try:
        return reward(upstream, domain, task, Simulator.of(domain, task), [greeting]).value == 1.0
    except InfrastructureError:  # judged by something that is not scored here
        return False


def privileged(task: Any) -> Iterator[str]:
    """The facts of a task that no prompt whose output is trained on may hold.

    Its id where that is more than a number (telecom's names the faults), the ticket, the user's
    scenario, the injected faults, the gold actions with their arguments, what must be told to the
    user, the arguments of its assertions, and the assertions in words that give any of these away.
    """
    if not task.id.isdecimal():
        yield task.id
    if task.ticket:
        yield task.ticket
    told = task.user_scenario.instructions
    if isinstance(told, str):
        yield told
    else:
        for part in (told.reason_for_call, told.known_info, told.task_instructions):
            if part and part.strip(" ."):
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
    harmless = set(wanted(task))
    yield from (text for text in criteria.nl_assertions or [] if text not in harmless)
    if task.description and task.description.purpose and not purpose(task):
        yield task.description.purpose


def wanted(task: Any) -> Iterator[str]:
    """tau2's assertions in words, less those that give a value away: an id, a number, a choice.

    "Agent should refuse to proceed with the cancellation." is a criterion; "Agent uses payment id
    gift_card_8887175." is the answer.
    """
    values = _values(task)
    for text in task.evaluation_criteria.nl_assertions or []:
        # Behind the first word of a sentence a capital is a name.
        named = re.search(r"(?<=[a-z,] )(?!Agent\b|User\b|I\b)[A-Z]", text)
        if not named and not re.search(r"[\d_$]", text) and not values & _words(text):
            yield text


def purpose(task: Any) -> str:
    """What tau2 says a task is about; "" where it says nothing, or tells a number.

    Most purposes are as general as "Test finding cheapest economy flight on the next day."; a few
    go on to "The total cost of the new flight will be $871."
    """
    text = (task.description.purpose if task.description else None) or ""
    return "" if re.search(r"[\d_$]", text) else text


def _values(task: Any) -> set[str]:
    """The words in the arguments of gold actions, and in what must be told."""
    criteria = task.evaluation_criteria
    values = {word for action in criteria.actions or [] for word in _words(action.arguments)}
    return values | {word for info in criteria.communicate_info or [] for word in _words(info)}


_PLAIN = {"a", "an", "and", "for", "in", "is", "no", "not", "of", "on", "or", "the", "to", "yes"}


def _words(value: Any) -> set[str]:
    """The words of strings, wherever in `value` they are."""
    if isinstance(value, dict):
        return set().union(*(_words(inner) for inner in value.values()))
    if isinstance(value, list):
        return set().union(*(_words(inner) for inner in value))
    return set(re.findall(r"[^\W_]{2,}", str(value).lower())) - _PLAIN


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
