"""One vLLM server, and what can go wrong with a request to it."""

from __future__ import annotations

import os
import random
from typing import Any

import httpx
from attrs import define

KEY_ENV = "VLLM_API_KEY"
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0


class Fault(Exception):
    """One try that failed and may be repeated. `down`: the server itself seems to be gone."""

    def __init__(self, text: str, down: bool = False, wait: float = 0.0) -> None:
        super().__init__(text)
        self.down, self.wait = down, wait


class Refused(Exception):
    """A request that the server understood and will not do (4xx): no use in repeating it."""

    def __init__(self, url: str, status: int, message: str) -> None:
        super().__init__(f"{url} refused the request ({status}): {message}")
        self.status, self.message = status, message

    @property
    def too_long(self) -> bool:
        """Whether the prompt did not fit into the server's context."""
        return "context length" in self.message or "max_model_len" in self.message


@define(eq=False)
class Endpoint:
    """One server.

    `ready`: it has been asked who it is since it last failed. `holds` is what the caller last put
    there (a folder of weights), None when that is not known.
    """

    url: str
    model: str = ""
    max_model_len: int = 0
    ready: bool = False
    holds: Any = None
    in_flight: int = 0
    down_until: float = 0.0
    last_fault: str = ""


def plain_url(url: str) -> str:
    """A base URL without the slash or the /v1 that people put at its end."""
    return url.strip().rstrip("/").removesuffix("/v1").rstrip("/")


def waiting_time(tried: int, asked: float) -> float:
    """Seconds before try number `tried` (from 1): doubling, with jitter, or as the server asked."""
    doubled = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (tried - 1))
    return max(min(asked, LONGEST_WAIT_SECONDS), doubled * random.uniform(0.5, 1.0))


def headers() -> dict[str, str]:
    """With the key of the environment, if there is one."""
    key = os.environ.get(KEY_ENV, "")
    return {"content-type": "application/json"} | (
        {"authorization": f"Bearer {key}"} if key else {}
    )


def served_by(reply: Any, wanted: str) -> dict[str, Any] | None:
    """The model that is wanted, else the first, out of an answer to /v1/models."""
    models = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(models, list):
        return None
    named = [m for m in models if isinstance(m, dict) and isinstance(m.get("id"), str)]
    return next((m for m in named if m["id"] == wanted), named[0] if named else None)


def seconds_of(text: str | None) -> float:
    """A Retry-After header's seconds; a date counts as none."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def message_of(response: httpx.Response) -> str:
    """What the server says went wrong, cut to a length that a person reads."""
    text = response.text
    try:
        found = response.json()
        inner = found.get("error", found)
        text = str(inner.get("message", text) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError):
        pass
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:397] + "..."
