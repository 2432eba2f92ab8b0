"""Calls of roles: a plug-in that crashes or gives something odd is named, with what it must be."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from rti.convert import shown
from rti.errors import PluginError, RtiError
from rti.types import Correction, Message

T = TypeVar("T")


@contextmanager
def asking(section: str, role: Any) -> Iterator[None]:
    """Around a call of a role: what it raises, and is none of ours, names it.

    Raises:
        PluginError: in place of such an error.
    """
    try:
        yield
    except RtiError:
        raise
    except Exception as error:  # a role is third-party code: anything may come
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise PluginError(
            f"[{section}] {type(role).__name__} failed: {type(error).__name__}: {error} "
            f"({Path(at.filename).name}, line {at.lineno}). Run with --traceback to see more."
        ) from error


def given(method: str, wanted: type[T], found: Any) -> T:
    """What a role gave, if it is what it has to be."""
    if not isinstance(found, wanted):
        raise TypeError(
            f"{method}() gave {shown(found)} of type {type(found).__name__}: must be "
            f"{wanted.__name__}"
        )
    return found


def whole(correction: Correction) -> None:
    """A correction is what its agent would have said: its message, and its own token ids."""
    message, ids = correction.message, correction.completion_ids
    if not isinstance(message, Message) or message.role != "assistant":
        raise TypeError(f"Correction.message is {shown(message)}: must be an assistant's Message")
    for prompt_or_completion in (ids, correction.corrector_prompt_ids or ()):
        if not all(isinstance(i, Integral) and i >= 0 for i in prompt_or_completion):
            raise TypeError(
                f"Correction has the token ids {shown(prompt_or_completion)}: must be whole "
                "numbers, as renderer.turn(message) gives"
            )
