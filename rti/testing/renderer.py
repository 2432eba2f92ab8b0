"""The check of a renderer: round trip, verbatim ids, the prefix property, thinking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from rti.interfaces import Renderer
from rti.testing._contract import check_ids, is_a, pure, that
from rti.types import Ids, Message, Tool


def check_renderer(
    renderer: Renderer,
    conversations: Sequence[Sequence[Message]],
    *,
    tools: Sequence[Tool] = (),
    prefix: bool = True,
) -> None:
    """The contract of a Renderer, on conversations written for its model family.

    `parse(turn(m))` gives back what `m` says and calls; a message's `token_ids` are inserted
    verbatim, whatever its text; each turn's prompt extends the prompt and the tokens of the turn
    before; and where `extends` says that a prompt extends other ids, it starts with all of them.

    A renderer that has the optional `thought(ids)` gives a number from 0 to `len(ids)` for any
    ids, and in `turn(m)` finds the reasoning of `m` before that place and its content after it.

    Args:
        renderer: already bound, if it needs a run's context.
        conversations: with at least one assistant message each.
        tools: shown in every prompt.
        prefix: False for a chat template that rewrites earlier turns (it strips old thinking, say);
            rollouts are then split into several samples.

    Raises:
        AssertionError: says what broke.
    """
    check_ids(renderer.stop_ids, "stop_ids")
    for number, conversation in enumerate(conversations):
        messages = list(conversation)
        that(
            any(m.role == "assistant" for m in messages),
            f"conversation {number} has no assistant message: nothing to check",
        )
        so_far: Ids = ()
        for position, message in enumerate(messages):
            if message.role != "assistant":
                continue
            where = f"conversation {number}, message {position}"
            prompt = pure("prompt", renderer.prompt, messages[:position], tools)
            check_ids(prompt, f"{where}: prompt")
            starts = tuple(prompt[: len(so_far)]) == so_far
            that(
                starts or not renderer.extends(so_far, prompt),
                f"{where}: extends says that its prompt extends the tokens before it, but it does "
                "not start with them (a training sample would be glued together wrongly)",
            )
            if prefix:
                that(
                    starts,
                    f"{where}: its prompt does not extend the tokens before it "
                    "(prefix=False if the chat template rewrites earlier turns)",
                )
                that(
                    renderer.extends(so_far, prompt),
                    f"{where}: extends denies that its prompt extends the tokens before it",
                )
            completion = _check_turn(renderer, message, where)
            messages[position] = evolve(message, token_ids=completion)
            _check_verbatim(renderer, messages[: position + 1], tools, where)
            so_far = tuple(prompt) + completion
            that(
                not renderer.extends((*so_far, so_far[-1]), so_far),
                f"{where}: extends says that ids extend longer ids",
            )


def _check_turn(renderer: Renderer, message: Message, where: str) -> Ids:
    """Render, parse back, and parse fragments; returns the completion's ids."""
    bare = evolve(message, token_ids=None)
    completion = pure("turn", renderer.turn, bare)
    check_ids(completion, f"{where}: turn")
    that(
        completion[-1] in renderer.stop_ids,
        f"{where}: turn does not end in one of stop_ids {renderer.stop_ids}",
    )
    parsed = _parse(renderer, completion, where)
    that(
        parsed.token_ids == completion,
        f"{where}: parse must set token_ids to the ids it was given",
    )

    def said(m: Message) -> tuple[Any, ...]:
        calls = [(c.name, dict(c.arguments)) for c in m.tool_calls]
        return m.role, m.content.strip(), m.reasoning.strip(), calls

    that(
        said(parsed) == said(bare),
        f"{where}: parse(turn(m)) says {said(parsed)!r}, m says {said(bare)!r}",
    )
    fragments = ((), completion[:-1], completion[1:], completion[::-1], completion * 2)
    for odd in fragments:
        _parse(renderer, odd, where)
    if getattr(renderer, "thought", None) is not None:
        _check_thought(renderer, bare, completion, fragments, where)
    return completion


def _check_thought(
    renderer: Any, message: Message, completion: Ids, fragments: Sequence[Ids], where: str
) -> None:
    """The thinking block in front of a completion ends where `thought` says."""
    count = _thought(renderer, completion, where)
    for odd in (*fragments, completion[: count // 2], completion[count:]):
        _thought(renderer, odd, where)
    before, after = renderer.decode(completion[:count]), renderer.decode(completion[count:])
    reasoning, content = message.reasoning.strip(), message.content.strip()
    that(
        reasoning in before,
        f"{where}: thought gives {count}, but these ids are {before!r}: the reasoning "
        f"{reasoning!r} is not in them",
    )
    that(
        content in after,
        f"{where}: thought gives {count}, which cuts into the content: what is left is {after!r}",
    )


def _thought(renderer: Any, ids: Ids, where: str) -> int:
    try:
        count = pure("thought", renderer.thought, ids)
    except Exception as error:  # whatever it is, it is the fault this check looks for
        raise AssertionError(f"{where}: thought({ids!r}) raises {error!r}") from error
    is_a(count, int, "thought")
    that(0 <= count <= len(ids), f"{where}: thought gives {count}, there are {len(ids)} ids")
    return int(count)


def _parse(renderer: Renderer, completion: Ids, where: str) -> Message:
    try:
        parsed = renderer.parse(completion)
    except Exception as error:  # whatever it is, it is the fault this check looks for
        raise AssertionError(f"{where}: parse({completion!r}) raises {error!r}") from error
    is_a(parsed, Message, "parse")
    that(parsed.role == "assistant", f"{where}: parse gave a message by {parsed.role!r}")
    return parsed


def _check_verbatim(
    renderer: Renderer, messages: Sequence[Message], tools: Sequence[Tool], where: str
) -> None:
    """The last message carries token ids: its text must not matter to the prompt after it."""
    *before, last = messages
    # What is said next must be in the family's own words, where its vocabulary is a small one.
    follow_up = next((m for m in messages if m.role == "user"), Message("user", last.content))
    other = evolve(last, content=f"{last.content} {last.content}", reasoning="")
    that(
        renderer.prompt([*before, last, follow_up], tools)
        == renderer.prompt([*before, other, follow_up], tools),
        f"{where}: its token_ids are not inserted verbatim, the next prompt depends on its text",
    )
