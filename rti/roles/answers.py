"""Reading a role's reply. Fail closed: what does not parse is no flag and no acceptance.

A reply that cannot be read has `parsed = False` and says of which kind it is in `problem`:
"empty", "no-json" (prose, or JSON that breaks off), "no-answer" (JSON without what was asked),
"contradiction", "no-direction", "unknown-word".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rti.roles.templates import Template
from rti.types import Diagnosis, Verdict

MAX_TEXT = 2000
"""Most characters of a reply that are kept: it goes into prompts and records."""
MAX_READ = 65_536
MAX_TRIES = 256
"""A reply longer than this, or with more braces that open nothing, is unreadable: looking on would
cost the square of its length."""
QUESTIONS = ("agrees", "leaks", "plausible")
"""The Verifier's three questions; a correction is accepted for yes, no, yes."""

_TEXT = {"type": "string", "maxLength": 600}
_SHORT = {"type": "string", "maxLength": 120}
_BOOL = {"type": "boolean"}


def _object(properties: Mapping[str, Any]) -> str:
    return json.dumps(
        {
            "type": "object",
            "properties": dict(properties),
            "required": list(properties),
            "additionalProperties": False,
        }
    )


SCHEMAS: Mapping[str, str] = {
    "validator": _object({"harmful": _BOOL, "kind": _SHORT, "direction": _TEXT}),
    "verifier": _object({"reason": _SHORT, **dict.fromkeys(QUESTIONS, _BOOL)}),
}
"""JSON schema of each judge's answer, for policies and endpoints that constrain decoding."""


def schema_of(template: Template) -> str:
    """The schema of a template's answer; "" where it is not JSON."""
    return SCHEMAS.get(template.role, "") if template.answer == "json" else ""


def read_diagnosis(template: Template, text: str) -> Diagnosis:
    """A Validator's reply. Harmful only when it clearly says so and gives a direction."""
    kept = text[:MAX_TEXT]

    def unread(problem: str) -> Diagnosis:
        return Diagnosis(False, raw=kept, parsed=False, problem=problem)

    if template.answer == "words":
        word, rest = _first_word(text)
        if word == template.no:
            return Diagnosis(False, raw=kept)
        if word == template.yes and rest:
            return Diagnosis(True, "flagged", rest[:MAX_TEXT], kept)
        return unread(_word_problem(word, template))
    found, problem = _json(text, ("harmful",))
    if found is None:
        return unread(problem)
    if not found["harmful"]:
        return Diagnosis(False, raw=kept)
    kind, direction = found.get("kind", ""), found.get("direction", "")
    if not isinstance(direction, str) or not isinstance(kind, str):
        return unread("no-answer")
    if not direction.strip():
        return unread("no-direction")
    return Diagnosis(True, kind[:200], direction.strip()[:MAX_TEXT], kept)


def read_verdict(template: Template, text: str) -> Verdict:
    """A Verifier's reply. Accepted only when it clearly says so to all three questions."""

    def unread(problem: str) -> Verdict:
        return Verdict(False, "unreadable reply", parsed=False, problem=problem)

    if template.answer == "words":
        word, rest = _first_word(text)
        if word == template.yes:
            return Verdict(True)
        if word == template.no:
            return Verdict(False, rest[:200] or "rejected")
        return unread(_word_problem(word, template))
    found, problem = _json(text, QUESTIONS)
    if found is None:
        return unread(problem)
    said = found.get("reason", "")
    said = said[:200] if isinstance(said, str) else ""
    against = [
        name
        for name, wrong in (
            ("does not agree with success", not found["agrees"]),
            ("leaks", found["leaks"]),
            ("implausible", not found["plausible"]),
        )
        if wrong
    ]
    if not against:
        return Verdict(True, said)
    return Verdict(False, ", ".join(against) + (f": {said}" if said else ""))


def _first_word(text: str) -> tuple[str, str]:
    word, _, rest = text.strip().partition(" ")
    return word, rest.strip().removeprefix(".").strip()


def _word_problem(word: str, template: Template) -> str:
    if not word:
        return "empty"
    return "no-direction" if word == template.yes else "unknown-word"


def _json(text: str, keys: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    """The one JSON object in a reply whose `keys` are all bools, or why there is none.

    Two objects that disagree are no answer: a reply that quotes injected text must not win.
    """
    if not text.strip():
        return None, "empty"
    objects = _objects(text)
    if not objects:
        return None, "no-json"
    found = [o for o in objects if all(isinstance(o.get(key), bool) for key in keys)]
    if not found:
        return None, "no-answer"
    if len({tuple(o[key] for key in keys) for o in found}) > 1:
        return None, "contradiction"
    return found[0], ""


def _objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects in a text, nested ones left out; none at all where there is no end to it."""
    decoder, at, tries = json.JSONDecoder(), 0, 0
    found: list[dict[str, Any]] = []
    if len(text) > MAX_READ:
        return []
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
            found.append(value)
        except (ValueError, RecursionError):
            at, tries = at + 1, tries + 1
            if tries > MAX_TRIES:
                return []
    return found
