"""A role's template + what it is asked about → the prompt, as tokens or as a conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from attrs import frozen

from rti.errors import NoCorrection
from rti.interfaces import Renderer
from rti.roles.templates import SPLICED, Template
from rti.types import Correction, History, Ids, Message, Provenance, Tool, Turn

_THOUGHT = re.compile(r"\s*<think>.*?(</think>|\Z)", re.DOTALL)


@frozen
class RolePrompt:
    """Renders one role's prompts for one student: `ids` for a policy, `messages` for an endpoint.

    Fields (`evidence`, `direction`, `kind`) are given by the role; history, tools and fence are
    filled in here.
    """

    template: Template
    renderer: Renderer

    def ids(
        self, history: History, draft: Turn, correction: Correction | None = None, **fields: str
    ) -> Ids:
        """The prompt in the student's tokens."""
        if self.template.mode == "chat":
            return self.renderer.prompt(self.messages(history, draft, correction, **fields))
        spliced = {"history": history.prompt_ids, "draft": draft.completion_ids}
        if correction is not None:
            spliced["correction"] = correction.completion_ids
        ids: list[int] = []
        for i, piece in enumerate(SPLICED.split(self.template.text)):
            text = self.template.fill(fields, piece)
            ids += spliced[piece] if i % 2 else self.renderer.encode(text)
        return tuple(ids)

    def messages(
        self, history: History, draft: Turn, correction: Correction | None = None, **fields: str
    ) -> list[Message]:
        """The conversation that a chat template asks for. Its transcripts stand between fences."""
        fence = fence_of(history)
        fields = {**fields, "fence": fence, "tools": list_tools(history.tools)}
        said = {
            "history": transcript(history.messages),
            "draft": words_of(draft.message),
            "observations": _observed(draft),
            "correction": words_of(correction.message) if correction else "",
        }
        # A splice is put in after the fields, and never looked into: what a user or a tool said
        # cannot name a field. The judges' own texts come out of data as well.
        for name in ("evidence", "direction", "kind"):
            fields[name] = fields.get(name, "").replace(fence, "")
        messages = []
        for role, text in self.template.parts():
            filled = [
                said[piece].replace(fence, "") if i % 2 else self.template.fill(fields, piece)
                for i, piece in enumerate(SPLICED.split(text))
            ]
            messages.append(Message("system" if role == "system" else "user", "".join(filled)))
        return messages

    def text(self, ids: Sequence[int]) -> str:
        """A reply in words, without its end-of-turn token and without a thinking block."""
        stops = self.renderer.stop_ids
        kept = [i for i in ids if i not in stops]
        return without_thought(self.renderer.decode(kept[_thought(self.renderer, kept) :]))

    def correction(self, prompt: Ids, ids: Ids, draft: Turn, provenance: Provenance) -> Correction:
        """A corrected turn out of sampled ids; `prompt` is what they were sampled after.

        A thinking block in front is the turn's own or private, as the template's `thinking`
        says. Private thinking is no part of ũ: it joins the corrector's prompt, so that the
        weight's numerator is still the probability that ũ was sampled with. Where a turn of this
        model cannot do without a block (its prompts may open one), ũ begins with the empty block
        that the renderer gives, and the numerator is that of ũ without the thinking.

        Raises:
            NoCorrection: when the turn did not come to its end, or is nothing but thinking.
        """
        if not ids or ids[-1] not in self.renderer.stop_ids:
            raise NoCorrection("unfinished")
        private = self.template.thinking == "private" or (
            self.template.thinking == "auto" and not draft.message.reasoning
        )
        cut = _thought(self.renderer, ids) if private else 0
        if cut and not [i for i in ids[cut:] if i not in self.renderer.stop_ids]:
            raise NoCorrection("only-thinking")
        empty: Ids = getattr(self.renderer, "empty_thought", ()) if cut else ()
        turn = (*empty, *ids[cut:])
        return Correction(
            completion_ids=turn,
            message=self.renderer.parse(turn),
            corrector_prompt_ids=prompt if empty else (*prompt, *ids[:cut]),
            provenance=provenance,
        )


def _thought(renderer: Renderer, ids: Sequence[int]) -> int:
    """Leading ids that are a thinking block, where the renderer can tell."""
    count = getattr(renderer, "thought", None)
    return int(count(ids)) if count is not None else 0


def without_thought(text: str) -> str:
    """Text without a leading `<think>…</think>`; one that never closes is all thought."""
    return _THOUGHT.sub("", text, count=1) if text.lstrip().startswith("<think>") else text


def fence_of(history: History) -> str:
    """A delimiter that tool and user text cannot guess: it hangs on the run's seed and the rollout.

    Drawn from the rollout and not from chance, or equal seeds would give unequal prompts; the
    same for all its turns and attempts, so that their prompts share a prefix.
    """
    key = history.key.child(turn=0, attempt=0, role="")
    digest = blake2b(repr(key).encode(), digest_size=6, person=b"rti-fence")
    return f"<<{digest.hexdigest()}>>"


def transcript(messages: Sequence[Message]) -> str:
    """A conversation in words, one block a message."""
    return "\n".join(f"{m.role}: {words_of(m)}" for m in messages)


def words_of(message: Message) -> str:
    """What a message says and calls. Reasoning is left out, as most chat templates do."""
    calls = [
        "call " + json.dumps({"name": c.name, "arguments": dict(c.arguments)}, ensure_ascii=False)
        for c in message.tool_calls
    ]
    return "\n".join(filter(None, [message.content, *calls]))


def list_tools(tools: Sequence[Tool]) -> str:
    """The agent's tools as JSON, and the names of those that are the user's."""
    listed: list[Mapping[str, Any]] = [
        {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
        for t in tools
        if t.owner == "agent"
    ]
    lines = ["Tools of the agent:", json.dumps(listed, ensure_ascii=False)] if listed else []
    theirs = [t.name for t in tools if t.owner == "user"]
    if theirs:
        lines.append(f"Tools that only the user has: {', '.join(theirs)}")
    return "\n".join(lines)


def _observed(draft: Turn) -> str:
    if draft.observations is None:
        return "(not known yet)"
    return transcript(draft.observations) or "(nothing)"
