"""What a model may make up as a call, and what tau2 is never asked to run.

It is refused as tau2 refuses: with an observation, in the rollout that made it up. Anything else
would end as a crash of the simulator, and drop a rollout that the policy failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rti_tau2.arithmetic import too_large

DEEPEST = 64
"""Levels of nested arguments; tau2's own have three."""
UNREADABLE = "the arguments cannot be read."


def readable(text: str) -> str:
    """The text, less half characters, which cannot be sent anywhere."""
    return text.encode("utf-8", "replace").decode()


def refusal(name: str, arguments: Mapping[str, Any]) -> str:
    """Why a call is not run, or ""."""
    if not _sound(arguments, DEEPEST):
        return UNREADABLE
    expression = arguments.get("expression")
    if name == "calculate" and isinstance(expression, str) and too_large(expression):
        return "the result is too large."
    return ""


def _sound(value: Any, levels: int) -> bool:
    if levels == 0:
        return False
    if isinstance(value, Mapping):
        return all(_sound(k, levels - 1) and _sound(v, levels - 1) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(_sound(inner, levels - 1) for inner in value)
    return not isinstance(value, str) or readable(value) == value
