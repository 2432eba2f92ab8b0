"""Reading a role's reply. Fail closed: what does not parse is no flag and no acceptance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rti import Diagnosis, Verdict
from rti_self.templates import Template

MAX_TEXT = 2000
"""Most characters of a reply that are kept: it goes into prompts and records."""


def read_diagnosis(template: Template, text: str) -> Diagnosis:
    """A Validator's reply. Harmful only when it clearly says so and gives a direction."""
    kept = text[:MAX_TEXT]
    if template.answer == "words":
        word, rest = _first_word(text)
        if word == template.no:
            return Diagnosis(False, raw=kept)
        if word == template.yes and rest:
            return Diagnosis(True, "flagged", rest[:MAX_TEXT], kept)
        return Diagnosis(False, raw=kept, parsed=False)
    found = _json(text, "harmful")
    if found is None:
        return Diagnosis(False, raw=kept, parsed=False)
    if not found["harmful"]:
        return Diagnosis(False, raw=kept)
    kind, direction = found.get("kind", ""), found.get("direction", "")
    if not isinstance(direction, str) or not direction.strip() or not isinstance(kind, str):
        return Diagnosis(False, raw=kept, parsed=False)
    return Diagnosis(True, kind[:200], direction.strip()[:MAX_TEXT], kept)


def read_verdict(template: Template, text: str) -> Verdict:
    """A Verifier's reply. Accepted only when it clearly says so."""
    if template.answer == "words":
        word, rest = _first_word(text)
        if word == template.yes:
            return Verdict(True)
        if word == template.no:
            return Verdict(False, rest[:200] or "rejected")
        return Verdict(False, "unreadable reply", parsed=False)
    found = _json(text, "accept")
    if found is None:
        return Verdict(False, "unreadable reply", parsed=False)
    reason = found.get("reason", "")
    said = reason[:200] if isinstance(reason, str) else ""
    return Verdict(True, said) if found["accept"] else Verdict(False, said or "rejected")


def _first_word(text: str) -> tuple[str, str]:
    word, _, rest = text.strip().partition(" ")
    return word, rest.strip().removeprefix(".").strip()


def _json(text: str, key: str) -> dict[str, Any] | None:
    """The one JSON object in a reply whose `key` is a bool.

    Two objects that disagree are no answer: a reply that quotes injected text must not win.
    """
    found = [o for o in _objects(text) if isinstance(o.get(key), bool)]
    return found[0] if found and len({o[key] for o in found}) == 1 else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(value, dict):
            yield value
        at = end
