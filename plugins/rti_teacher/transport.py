"""One HTTP exchange with a bound on its time, and a Fault for all that goes wrong in it.

The key lives here and nowhere else; what servers say is rid of it before anybody sees it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field

from rti import ConfigError
from rti.config import TeacherConfig
from rti_teacher.faults import Fault, of_status

CHAT, COMPLETION = "chat/completions", "completions"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PLACEHOLDER = "none"
"""Goes out as the key where there is none: servers that ask for no key look at none."""


@define
class Here:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    client: Any
    slots: asyncio.Semaphore
    naming: asyncio.Lock


@define(eq=False)
class Transport:
    """Connections to one address with one key."""

    url: str
    key: str = field(repr=False)
    config: TeacherConfig
    _state: Here | None = field(init=False, default=None, repr=False)

    @property
    def local(self) -> bool:
        """Whether it is on this machine."""
        return (urlsplit(self.url).hostname or "") in LOOPBACK

    def here(self) -> Here:
        """Connections and locks of the running loop: those of another one are of no use."""
        loop = asyncio.get_running_loop()
        if self._state is None or self._state.loop is not loop:
            import openai

            # A proxy named by the environment has no way to this machine's own loopback.
            own = openai.DefaultAsyncHttpxClient(trust_env=False) if self.local else None
            client = openai.AsyncOpenAI(
                api_key=self.key or PLACEHOLDER,
                base_url=self.url,
                timeout=self.config.timeout_s,
                max_retries=0,  # tries are counted and bounded by the Endpoint
                http_client=own,
            )
            slots = asyncio.Semaphore(self.config.concurrency)
            self._state = Here(loop, client, slots, asyncio.Lock())
        return self._state

    async def close(self) -> None:
        """Close the connections of this loop. They open again when they are needed."""
        state, self._state = self._state, None
        if state is not None and state.loop is asyncio.get_running_loop():
            await state.client.close()

    async def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Any]) -> Any:
        """What `read` makes of a completion, or the Fault that came instead of one."""
        known = {k: body[k] for k in ("model", "messages", "prompt") if k in body}
        extra = {k: v for k, v in body.items() if k not in known}
        client = self.here().client
        api = client.chat.completions if path == CHAT else client.completions
        # The raw answer: what an endpoint calls a completion is checked by `read` alone.
        return await self._exchange(api.with_raw_response.create(**known, extra_body=extra), read)

    async def models(self) -> list[str] | Fault:
        """The names that it lists."""
        found: list[str] | Fault
        found = await self._exchange(self.here().client.models.with_raw_response.list(), _names)
        return found

    async def _exchange(self, call: Awaitable[Any], read: Callable[[Any], Any]) -> Any:
        import openai

        try:
            async with asyncio.timeout(self.config.timeout_s):
                answer = await call
            text = answer.http_response.text
        except (TimeoutError, openai.APITimeoutError):
            late = f"did not answer within {self.config.timeout_s:g} s"
            return Fault("passing", late, cost_unknown=True)
        except openai.APIStatusError as error:
            said = self._scrubbed(error.response.text)
            return of_status(error.status_code, said, _json(said), error.response.headers)
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            said = f"{type(cause).__name__}: {self._scrubbed(str(cause))}".removesuffix(": ")
            unsent = type(cause).__name__ == "ConnectError"
            what = f"cannot be reached ({said})" if unsent else f"broke off ({said})"
            return Fault("passing", what, cost_unknown=not unsent)
        except (openai.OpenAIError, UnicodeError) as error:
            return _unreadable(type(error).__name__, "")
        try:
            return read(json.loads(text))
        except json.JSONDecodeError:
            return _unreadable("no JSON", self._scrubbed(text))
        except (ValueError, RecursionError) as error:
            return _unreadable(str(error), self._scrubbed(text))

    def _scrubbed(self, text: str) -> str:
        """A server's words without the key, should it send it back."""
        return text.replace(self.key, "***") if self.key else text


def _unreadable(why: str, text: str) -> Fault:
    start = " ".join(text[:80].split())
    what = f"gave an answer that cannot be read ({why})" + (f": {start!r}" if start else "")
    return Fault("passing", what, cost_unknown=True)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _names(body: Any) -> list[str]:
    rows = body.get("data") if isinstance(body, dict) else None
    if not isinstance(rows, list):
        raise ValueError("no list of models")
    return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]


def checked_address(url: str) -> str:
    """An address as `[teacher] base_url` may be.

    Raises:
        ConfigError: for one that cannot be used. It never shows a password.
    """
    if not url:
        raise ConfigError(
            "[teacher] base_url is not given, and OPENAI_BASE_URL is not set: name the endpoint, "
            "as in http://127.0.0.1:8000/v1 or https://api.openai.com/v1."
        )
    if "@" in url:  # it would be written into config.toml and into errors
        raise ConfigError(
            "[teacher] base_url holds a user name or a password: leave them out. A key comes from "
            "the environment variable that [teacher] key_env names."
        )
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and not parts.query
        fits = fits and parts.port != 0
    except ValueError:  # brackets or a port that make no sense
        fits = False
    if not fits:
        raise ConfigError(
            f"[teacher] base_url = {url!r}: wanted an address as in http://127.0.0.1:8000/v1."
        )
    return url.rstrip("/")


def key_of(env: str) -> str:
    """The key that an environment variable holds; "" when it is not set.

    Raises:
        ConfigError: when it holds something that no header can carry. It never shows it.
    """
    key = os.environ.get(env, "").strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            f"The environment variable {env} ([teacher] key_env) holds no key: there are signs in "
            "it that no key has. Its value is not shown here."
        )
    return key
