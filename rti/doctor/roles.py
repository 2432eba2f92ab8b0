"""Validator, Corrector, Verifiers, gates: do they bind, and what do they say of themselves?

A role whose means lie elsewhere may define `async check() -> list[tuple[level, text]]` with levels
"ok", "note", "warning" and "error": `rti doctor` asks it, once it is bound, and never offline.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

from rti.doctor.finding import Finding, Level, attempt, read_answer
from rti.doctor.parts import Parts, lacks_an_extra
from rti.errors import InfrastructureError, RtiError

ROLES = ("validator", "corrector", "veto", "verifier", "gate", "weighter", "trigger")
LEAST_SECONDS = 30.0
"""A role's check may take twice [teacher] timeout_s, and at least this long."""


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """Bind every role, then ask those that can be asked."""
    if parts["environment"] is None:
        return
    names = [name for name, _ in parts.sections() if name.partition(".")[0] in ROLES]
    for finding in await attempt("binds", _bind, parts, names):
        yield finding
    asked = [name for name in names if hasattr(parts[name], "check")]
    if not asked:
        return
    titles = ", ".join(parts.title(name) for name in asked)
    for finding in await attempt("teacher", _settings, parts, asked):
        yield finding
    if parts.offline:
        yield Finding("note", "check", f"not asked offline: {titles}")
        return
    for finding in await attempt("check", _ask, parts, asked):
        yield finding


def _bind(parts: Parts, names: list[str]) -> Iterator[Finding]:
    bound: list[str] = []
    for name in names:
        if parts[name] is None:
            continue
        title = parts.title(name)
        try:
            parts.bind(name)
        except RtiError as error:
            here = parts.offline and (
                lacks_an_extra(error) or isinstance(error, InfrastructureError)
            )
            words = f"{title} is not looked at here: {error}" if here else str(error)
            yield Finding("note" if here else "error", "binds", words)
        else:
            bound.append(title)
    if bound:
        yield Finding("ok", "binds", ", ".join(bound))


def _settings(parts: Parts, asked: list[str]) -> Iterator[Finding]:
    """What the config says of endpoints, before anyone is asked. A key is never shown.

    A role may have an address and a key of its own: options `base_url` and `key_env`.
    """
    teacher = parts.config.teacher
    if not (teacher.max_requests or teacher.max_tokens or teacher.max_cost):
        yield Finding(
            "note",
            "teacher",
            "[teacher] has no budget: set max_requests, max_tokens, or max_cost with prices",
        )
    if not parts.offline:
        return  # the roles tell the rest themselves
    for url, env in sorted({_place(parts, name) for name in asked}):
        key, near = os.environ.get(env, ""), _near(url)
        if not url:
            yield Finding(
                "warning",
                "teacher",
                "neither [teacher] base_url nor OPENAI_BASE_URL names an endpoint, as "
                "http://127.0.0.1:8000/v1 would",
            )
        elif key and not near and url.startswith("http:"):
            yield Finding(
                "warning", "teacher", f"the key in {env} goes to {url} unencrypted: use https"
            )
        elif key or near:
            words = f"a key in {env}" if key else "no key, which one on this machine may not need"
            yield Finding("ok", "teacher", f"{url}, with {words}")
        else:
            yield Finding(
                "note",
                "teacher",
                f"{url}: the environment variable {env} ([teacher] key_env) is not set here, and "
                "most endpoints want a key",
            )


def _place(parts: Parts, name: str) -> tuple[str, str]:
    role, teacher = parts[name], parts.config.teacher
    url = getattr(role, "base_url", "") or teacher.base_url
    env = getattr(role, "key_env", "") or teacher.key_env
    return url or os.environ.get("OPENAI_BASE_URL", ""), env


def _near(url: str) -> bool:
    """Whether an address is on this machine itself."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def _ask(parts: Parts, names: list[str]) -> list[Finding]:
    teacher = parts.config.teacher
    limit = max(LEAST_SECONDS, 2 * teacher.timeout_s)
    said: dict[tuple[Level, str], list[str]] = defaultdict(list)
    for name in names:
        title = parts.title(name)
        try:
            async with asyncio.timeout(limit):
                answers = list(await parts[name].check())
        except TimeoutError:
            answers = [("error", f"no word within {limit:g} s: is the endpoint there?")]
        except RtiError as error:
            answers = [("error", str(error))]
        for answer in answers:
            said[read_answer(answer)].append(title)
    return [
        Finding(level, "check", f"{text} ({', '.join(who)})") for (level, text), who in said.items()
    ]
