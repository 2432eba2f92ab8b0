"""What can go wrong with a request, and whether to ask again. No key ever gets into the words."""

from __future__ import annotations

import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from attrs import frozen

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
"""Seconds: pauses are drawn from 0 to twice as much each time (exponential, full jitter)."""
RETRIED = (408, 409, 425, 429)
"""Statuses that pass by themselves, beside the 5xx."""


@frozen
class Fault:
    """One request that failed, in words that go behind "The teacher at URL …".

    kind: "passing" (ask again), "denied" (the key), "prompt" (too long for it), or "refused".
    """

    kind: str
    what: str
    status: int = 0
    param: str = ""
    retry_after: float | None = None
    cost_unknown: bool = False
    """It may have been worked on, and charged, though no answer came."""


def of_status(status: int, text: str, body: Any, headers: Mapping[str, str]) -> Fault:
    """The fault of an answer with an error status; `text` is the server's own words."""
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    error = error if isinstance(error, Mapping) else {}
    said = error.get("message") or error.get("detail") or text
    said = " ".join(str(said).split())[:300]
    what = f"answered {status}" + (f": {said}" if said else "")
    param = error.get("param")
    param = param if isinstance(param, str) else ""
    if status in (401, 403):
        return Fault("denied", what, status)
    if status in RETRIED or status >= 500:
        return Fault("passing", what, status, param, retry_after(headers))
    words = f"{error.get('code')} {said}".lower()
    if "context_length" in words or "context length" in words or status == 413:
        return Fault("prompt", what, status)
    return Fault("refused", what, status, param)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: a number, or a date."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def pause(tries: int, asked: float | None, bound: float) -> float:
    """Seconds before the next try after `tries` of them, at most `bound`."""
    if asked is not None:
        # A little more than asked, never less: those who wait together must not come together.
        return min(asked + random.uniform(0, FIRST_PAUSE), bound)
    longest = min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE, bound)
    return random.uniform(0, longest)
