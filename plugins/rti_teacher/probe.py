"""What `rti doctor` wants to know of a teacher: is it there, what does it serve, what can it tell.

Three small requests at most, out of the run's budget, one try each; one that an endpoint refuses
for an option it lacks is sent again without it.
"""

from __future__ import annotations

from typing import Any

from rti import InfrastructureError, RunError
from rti.roles import SCHEMAS
from rti_teacher.budget import Tokens
from rti_teacher.endpoint import Ask, Endpoint
from rti_teacher.transport import CHAT, COMPLETION
from rti_teacher.wire import Reply

Finding = tuple[str, str]
REPLY = 96
"""Tokens that a probe's answer may take: room for the schema's object."""
_QUESTION = (
    'Answer with one JSON object and nothing else: {"reason": "a few words", "agrees": true, '
    '"leaks": false, "plausible": true}'
)


async def probe(endpoint: Endpoint, model: str, chats: bool) -> list[Finding]:
    """Findings as (level, text), level "ok", "note", "warning" or "error".

    `chats` says that role prompts go out as conversations: then an endpoint without them is none.
    """
    known = endpoint.report.get((model, chats))
    if known is None:
        endpoint.report[model, chats] = known = await _probe(endpoint, model, chats)
        return known
    return [("ok", f"teacher {model or 'of this run'} at {endpoint.url}: looked at already")]


async def _probe(endpoint: Endpoint, model: str, chats: bool) -> list[Finding]:
    where = f"teacher at {endpoint.url}"
    if endpoint.budget.spent:
        return [("warning", f"{where}: not asked, {endpoint.budget.spent}")]
    findings = _about_the_key(endpoint, where)
    try:
        found, name = await _models(endpoint, where, model)
        findings += found
        if name:
            findings += await _chat(endpoint, where, name, chats)
            findings += await _completions(endpoint, where, name, chats)
    except (InfrastructureError, RunError) as error:
        findings.append(("error", str(error)))
    if endpoint.budget.notes:
        findings += [("note", note) for note in endpoint.budget.notes]
    return findings


def _about_the_key(endpoint: Endpoint, where: str) -> list[Finding]:
    if not endpoint.transport.key:
        level = "ok" if endpoint.transport.local else "warning"
        return [(level, f"{where}: no key, {endpoint.key_env} is not set")]
    if endpoint.url.startswith("http:") and not endpoint.transport.local:
        return [("warning", f"{where}: the key goes out unencrypted, use https")]
    return [("ok", f"{where}: the key comes from {endpoint.key_env}")]


async def _models(endpoint: Endpoint, where: str, model: str) -> tuple[list[Finding], str]:
    """What it serves, and the model to go on with; "" when that is not known."""
    try:
        served = await endpoint.models(tries=1)
    except RunError as error:
        if not model or "environment variable" in str(error):
            raise
        return [("note", f"{where}: does not list its models")], model
    if model in served:
        return [("ok", f"{where}: serves {model}")], model
    if not model:
        return [("ok", f"{where}: reachable")], await endpoint.model("")
    listed = ", ".join(served[:10]) or "nothing that it names"
    text = f"{where}: serves no {model!r} but {listed}. Set [teacher] model."
    return [("error", text)], ""


async def _ask(endpoint: Endpoint, model: str, ask: Ask) -> Reply | str:
    """The reply, or why there is none."""
    try:
        return await endpoint.ask(ask, model, tries=1)
    except (RunError, InfrastructureError) as error:
        return str(error)


async def _chat(endpoint: Endpoint, where: str, model: str, needed: bool) -> list[Finding]:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": _QUESTION}], "logprobs": True
    }  # fmt: skip
    ask = Ask(CHAT, body, Tokens(len(_QUESTION) // 3, REPLY), 0, SCHEMAS["verifier"])
    reply = await _ask(endpoint, model, ask)
    told = "logprobs" in body
    if isinstance(reply, str) and "logprob" in reply.lower():
        told = False
        reply = await _ask(endpoint, model, Ask(CHAT, {"messages": body["messages"]}, ask.tokens))
    if isinstance(reply, str):
        if needed:
            return [("error", f"{where}: no chat completion. {reply}")]
        return [("note", f"{where}: no chat completions, which these role prompts do not need")]
    shown = reply.raw.get("logprobs")
    logprobs = told and isinstance(shown, dict) and bool(shown.get("content"))
    constrained = not endpoint.dialect.lacks(CHAT, model, "schema")
    return [
        ("ok", f"{where}: answers chat completions"),
        _about_logprobs(where, "chat completions", logprobs),
        ("ok", f"{where}: takes a JSON schema for the judges' answers")
        if constrained
        else (
            "note",
            f"{where}: takes no JSON schema: the judges' answers are parsed as they come",
        ),
    ]


async def _completions(endpoint: Endpoint, where: str, model: str, chats: bool) -> list[Finding]:
    body = {"prompt": "user : go to", "logprobs": 1, "echo": True}
    reply = await _ask(endpoint, model, Ask(COMPLETION, body, Tokens(16, 1), 0))
    if isinstance(reply, str):
        level = "note" if chats else "error"
        why = "and so no logprobs of given text" if chats else reply
        return [(level, f"{where}: no completions of plain text: {why}")]
    shown = reply.raw.get("logprobs")
    rows = shown.get("token_logprobs") if isinstance(shown, dict) else None
    echoed = isinstance(rows, list) and len([r for r in rows if r is not None]) > 1
    return [
        ("ok", f"{where}: answers completions of plain text"),
        _about_logprobs(where, "given text", echoed),
    ]


def _about_logprobs(where: str, what: str, told: bool) -> Finding:
    if told:
        return ("ok", f"{where}: gives logprobs of {what}")
    return ("note", f"{where}: gives no logprobs of {what}; only distillation needs them")
