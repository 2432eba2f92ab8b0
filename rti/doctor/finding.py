"""One line of the doctor's report, and how a check that breaks becomes one."""

from __future__ import annotations

import inspect
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from rti.errors import RtiError

Level = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")


@frozen
class Finding:
    """What one check found: `text` says it with the way out, `details` lists the cases."""

    level: Level
    check: str
    text: str
    details: tuple[str, ...] = ()
    section: str = ""


def read_answer(answer: Any) -> tuple[Level, str]:
    """What a plug-in's check() said: (level, text). A level that is none is an error of its own."""
    level, text = answer
    for known in LEVELS:
        if level == known:
            return known, str(text)
    return "error", f"{text} (check() gave the level {level!r}: wanted one of {', '.join(LEVELS)})"


async def attempt(check: str, function: Callable[..., Any], *arguments: Any) -> list[Finding]:
    """Run one check, async or not: its findings, and an error finding for what it raised."""
    findings: list[Finding] = []
    try:
        found = function(*arguments)
        if inspect.isawaitable(found):
            found = await found
        for finding in [found] if isinstance(found, Finding) else found or ():
            findings.append(finding)  # one by one: a generator may raise after the first
    except (RtiError, AssertionError) as error:
        findings.append(Finding("error", check, str(error) or type(error).__name__))
    except Exception as error:  # plug-ins are third-party code: anything may come
        last = traceback.extract_tb(error.__traceback__)[-1]
        findings.append(
            Finding(
                "error",
                check,
                f"it crashed: {type(error).__name__}: {' '.join(str(error).split())} "
                f"({Path(last.filename).name}, line {last.lineno}). A plug-in raises RtiErrors "
                "with a way out; this one has a fault.",
            )
        )
    return findings


def summary(findings: Sequence[Finding]) -> str:
    """One line: "12 ok, 1 warning, 0 errors". Notes are counted where there are any."""
    counts = Counter(f.level for f in findings)
    words = [f"{counts['ok']} ok"]
    if counts["note"]:
        words.append(_number(counts["note"], "note"))
    words += [_number(counts["warning"], "warning"), _number(counts["error"], "error")]
    return ", ".join(words)


def _number(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"
