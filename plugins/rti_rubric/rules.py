"""The rules. Each looks at one turn and returns a harmful Diagnosis, or None.

Rules are reward-oriented: they flag what derails a rollout, not what is merely roundabout. So
"hands over after an error" is no rule here: where a tool is on nobody's list, that is right.

A rule's direction repeats only tool names from the draft or the tool list, never evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rti import Diagnosis, Evidence, History, Message, PluginError, ToolCall, Turn

Rule = Callable[[Turn, History, Evidence], Diagnosis | None]
"""Judges a turn: a harmful Diagnosis, None, or `NEEDS_OBSERVATIONS`."""

NEEDS_OBSERVATIONS = Diagnosis(False, "needs-observations")
"""What a rule returns when it cannot judge before the turn has been executed."""

RULES: dict[str, Rule] = {}
"""All registered rules by name."""


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as a rule.

    Raises:
        PluginError: another rule has this name already.
    """

    def register(function: Rule) -> Rule:
        if name in RULES:
            raise PluginError(
                f"rule {name!r} of {function.__module__}: {RULES[name].__module__} has a rule of "
                "this name already; choose another"
            )
        RULES[name] = function
        return function

    return register


def worded(evidence: Evidence, kind: str, words: str) -> str:
    """The direction of a rule: as the environment words it, else `words`.

    `facts["directions"]` maps kinds of diagnosis to directions in the language of an environment
    whose policy would not understand English prose.

    Raises:
        PluginError: `directions` is no mapping from names to texts.
    """
    own = evidence.facts.get("directions", {})
    if not isinstance(own, Mapping) or not isinstance(own.get(kind, ""), str):
        raise PluginError(
            "[validator] rubric: the environment's evidence.facts['directions'] must map kinds of "
            f"diagnosis to texts, not {own!r}. Put it right there."
        )
    return str(own.get(kind) or words)


@rule("foreign-tool")
def foreign_tool(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
    """A failed call of a tool that is the user's, or that is on no list.

    The tool is the called name, or any string among the arguments that names a user's tool
    (worlds with one generic `call` tool). With an empty tool list only errors without blame
    could be seen, so the rule is silent.
    """
    if not turn.message.tool_calls or not history.tools:
        return None
    if turn.observations is None:
        return NEEDS_OBSERVATIONS
    owners = {tool.name: tool.owner for tool in history.tools}
    for call in turn.message.tool_calls:
        if not _failed(call, turn.observations):
            continue
        for name in (call.name, *_strings(call.arguments)):
            if owners.get(name) == "user":
                return Diagnosis(
                    True,
                    "foreign-tool",
                    worded(
                        evidence,
                        "foreign-tool",
                        "{tool} is on the user's side and cannot be called from here: ask the "
                        "user to run it and to report the result.",
                    ).replace("{tool}", name),
                )
        if call.name not in owners:
            return Diagnosis(
                True,
                "unknown-tool",
                f"There is no tool {call.name}: use one that is listed, or say that it cannot "
                "be done.",
            )
    return None


@rule("repeated-failure")
def repeated_failure(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
    """A failed call that had failed before with the same name and arguments.

    A repeat that succeeds is no fault (something changed in between), so the turn must have
    been executed.
    """
    failed_before = list(_failed_calls(history.messages))
    repeats = [
        call
        for call in turn.message.tool_calls
        if any(_same(call, earlier) for earlier in failed_before)
    ]
    if not repeats:
        return None
    if turn.observations is None:
        return NEEDS_OBSERVATIONS
    for call in repeats:
        if _failed(call, turn.observations):
            return Diagnosis(
                True,
                "repeated-failure",
                f"{call.name} has failed with the same arguments before: do not repeat it, "
                "change the arguments or take another way.",
            )
    return None


_LIKE_A_CALL = re.compile(
    r"</?tool_calls?>|<function=|<\|tool_call|\[TOOL_CALLS\]|<\|python_tag\|>"
    # A JSON object with a name and arguments, from the start of a line.
    r"|^\s*(?:```(?:json)?\s*)?\{\s*\"name\"\s*:.*\"(?:arguments|parameters)\"",
    re.MULTILINE | re.DOTALL,
)


@rule("malformed-call")
def malformed_call(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
    """Text that was meant as a tool call and is none, in a turn that calls nothing.

    Not among the default rules: where the world lets the agent try again, no harm is done.
    """
    message = turn.message
    if not history.tools or message.tool_calls or not _LIKE_A_CALL.search(message.content):
        return None
    return Diagnosis(
        True,
        "malformed-call",
        "The tool call is not well formed, so nothing was called: write it again, whole and in the "
        "usual format.",
    )


def _failed(call: ToolCall, observations: Sequence[Message]) -> bool:
    """Whether an observation reports an error for `call` (or for no call in particular)."""
    return any(m.error and m.tool_call_id in (None, call.id) for m in observations)


def _failed_calls(messages: Sequence[Message]) -> Iterator[ToolCall]:
    """Calls in a conversation that were answered by an error, in order."""
    for position, message in enumerate(messages):
        if not message.tool_calls:
            continue
        answers: list[Message] = []
        for later in messages[position + 1 :]:
            if later.role == "assistant":
                break
            answers.append(later)
        yield from (call for call in message.tool_calls if _failed(call, answers))


def _same(a: ToolCall, b: ToolCall) -> bool:
    return a.name == b.name and a.arguments == b.arguments


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
