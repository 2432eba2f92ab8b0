"""A reference episode through the renderer: prefixes, the loss mask, and room in the context."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from attrs import evolve, frozen

from rti.batch import pieces
from rti.conformance import play, says_a_word
from rti.doctor.environment import GOLD_TURNS
from rti.doctor.finding import Finding, attempt
from rti.doctor.parts import Episode, Parts
from rti.errors import NoReference
from rti.interfaces import Renderer
from rti.types import Ids, Message, Rollout, Turn

ENOUGH_TURNS = 3
"""A prefix that breaks does so when an old turn is no longer the last one."""
TRIES = 6
"""Tasks that are played in search of an episode of so many turns."""
MOST_PROMPTS = 64
"""First prompts that are rendered to find the longest."""
THOUGHT = "They want this done. I go on with the next step."


async def find(parts: Parts) -> None:
    """Play reference agents until an episode has enough turns, and keep the longest."""
    environment = parts["environment"]
    if environment is None or not parts.tasks:
        return
    for name in ("gold", "noop", ""):
        agent = environment.reference(name) if name else says_a_word
        if agent is None or (not name and parts.episode is not None):
            continue
        for task in parts.tasks[:TRIES]:
            most = GOLD_TURNS if name == "gold" else parts.config.rollout.max_turns
            try:
                played = await play(environment, task, agent, most)
            except NoReference:
                continue
            await played.session.close()
            best = len(parts.episode.play.turns) if parts.episode else 0
            if len(played.turns) > best:
                parts.episode = Episode(played, name or "a word a turn")
            if len(played.turns) >= ENOUGH_TURNS:
                return


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """What a rollout like the reference episode turns into."""
    if not parts.renderer_ready:
        return
    for check, function in (("prefix", _prefix), ("loss", _loss), ("context", _context)):
        for finding in await attempt(check, function, parts):
            yield finding


@frozen
class _Walk:
    """The turns of an episode as the renderer sees them."""

    turns: tuple[Turn, ...]
    breaks: tuple[int, ...]
    """Turns whose prompt does not extend what came before."""
    samples: int
    tokens: int
    """Of all training sequences together."""


def _walk(parts: Parts, episode: Episode, vary: Callable[[Message, Ids], Ids]) -> _Walk:
    """Render the episode turn by turn; `vary` says what was sampled in place of a turn's ids."""
    renderer: Renderer = parts["renderer"]
    session = episode.play.session
    tools, messages = tuple(session.tools), list(session.opening)
    turns: list[Turn] = []
    breaks: list[int] = []
    for turn, step in zip(episode.play.turns, episode.play.steps, strict=True):
        prompt = tuple(renderer.prompt(messages, tools))
        if turns and not renderer.extends(turns[-1].prompt_ids + turns[-1].completion_ids, prompt):
            breaks.append(turn.index)
        ids = vary(turn.message, tuple(renderer.turn(turn.message)))
        said = evolve(renderer.parse(ids), token_ids=ids)
        turns.append(Turn(turn.index, prompt, ids, (0.0,) * len(ids), said))
        messages += [said, *step.observations]
    made = pieces(Rollout(parts.tasks[0], 0, tuple(turns)), renderer.extends)
    return _Walk(tuple(turns), tuple(breaks), len(made), sum(len(p.ids) for p in made))


def _as_is(_: Message, ids: Ids) -> Ids:
    return ids


def _prefix(parts: Parts) -> Iterator[Finding]:
    renderer: Renderer = parts["renderer"]
    episode = parts.episode
    if episode is None:
        yield Finding("note", "prefix", "not looked at: no reference agent played an episode")
        return
    number = len(episode.play.turns)
    whole = _walk(parts, episode, _as_is)
    last = whole.turns[-1]
    episode.prompts = tuple(turn.prompt_ids for turn in whole.turns)
    episode.tokens = len(last.prompt_ids) + len(last.completion_ids)

    def cut(_: Message, ids: Ids) -> Ids:
        return ids[:-1] or ids

    def thinks(message: Message, ids: Ids) -> Ids:
        return tuple(renderer.turn(evolve(message, reasoning=THOUGHT)))

    variants = [
        ("as they are", whole),
        ("cut off at max_new_tokens", _walk(parts, episode, cut)),
    ]
    if renderer.parse(thinks(episode.play.turns[0].message, ())).reasoning:
        variants.append(("with a thought", _walk(parts, episode, thinks)))
    broken = [(name, walk) for name, walk in variants if walk.breaks]
    of = f"{number} turns of the {episode.agent} agent"
    if number < 2:
        yield Finding("note", "prefix", f"not looked at: {of} are too few for a second prompt")
        return
    for breaks in dict.fromkeys(walk.breaks for _, walk in broken):
        alike = [(name, walk) for name, walk in broken if walk.breaks == breaks]
        names, walk = ", ".join(name for name, _ in alike), alike[0][1]
        end = walk.turns[-1]
        yield Finding(
            "warning",
            "prefix",
            f"turns {names}: the prompt does not extend the last one's tokens at turn "
            f"{', '.join(map(str, breaks))} of {number} (counted from 0). Such a rollout is split "
            f"into {walk.samples} training samples of {walk.tokens} tokens in place of one of "
            f"{len(end.prompt_ids) + len(end.completion_ids)}, and caches of its prefix are lost. "
            "The loss stays right. A renderer that keeps old turns as they were avoids it.",
        )
    fine = [name for name, walk in variants if not walk.breaks]
    if fine:
        short = "" if number >= ENOUGH_TURNS else " (few: an episode of three shows more)"
        yield Finding(
            "ok",
            "prefix",
            f"every prompt extends the last one's tokens over {of}{short}: turns {', '.join(fine)}",
        )


def _loss(parts: Parts) -> Iterator[Finding]:
    if parts.episode is None:
        return
    renderer: Renderer = parts["renderer"]
    walk = _walk(parts, parts.episode, _as_is)
    stops = renderer.stop_ids
    made = pieces(Rollout(parts.tasks[0], 0, walk.turns), renderer.extends)
    said = [i for turn in walk.turns for i in turn.completion_ids]
    learned = [i for p in made for i, m in zip(p.ids, p.mask, strict=True) if m]
    if learned != said or any(turn.completion_ids[-1] not in stops for turn in walk.turns):
        yield Finding(
            "error",
            "loss",
            "the loss mask of a rollout does not hold the tokens the agent said, each turn's end "
            "token included: turn() and extends() of the renderer do not fit together",
        )
        return
    total = sum(len(p.ids) for p in made)
    yield Finding(
        "ok",
        "loss",
        f"of {total} tokens of that rollout {len(said)} are in the loss: the agent's, with the "
        f"token that ends each of its {len(walk.turns)} turns; those of tools and users are not",
    )


async def _context(parts: Parts) -> list[Finding]:
    at = parts.config.rollout
    lengths = await _first_prompts(parts)
    parts.first_prompt = longest = max(lengths)
    positions = _positions(parts)
    found: list[Finding] = []
    limits = [
        (at.max_context, f"[rollout] max_context = {at.max_context}", "Raise it"),
        (positions, f"the model's max_position_embeddings = {positions}", "Shorten the prompt"),
    ]
    needed = longest + at.max_new_tokens
    for limit, name, way in limits:
        if not limit or needed <= limit:
            continue
        late = sum(n + at.max_new_tokens > limit for n in lengths)
        found.append(
            Finding(
                "error" if late == len(lengths) else "warning",
                "context",
                f"{late} of {len(lengths)} tasks have no room for their first turn: a prompt of up "
                f"to {longest} tokens and max_new_tokens = {at.max_new_tokens} do not fit in "
                f"{name}. {way}, or lower max_new_tokens (an environment may have a shorter "
                "system message).",
            )
        )
    if found:
        return found
    if positions and at.max_context > positions:
        found.append(
            Finding(
                "warning",
                "context",
                f"[rollout] max_context = {at.max_context} is more than the model's "
                f"max_position_embeddings = {positions}: beyond those it reads nonsense. Set "
                f"max_context = {positions}.",
            )
        )
    limit = min(filter(None, (at.max_context, positions)), default=0)
    if limit and parts.episode and parts.episode.tokens > limit:
        found.append(
            Finding(
                "warning",
                "context",
                f"the reference episode takes {parts.episode.tokens} tokens, more than the {limit} "
                "that fit: rollouts of such tasks are truncated before they can succeed.",
            )
        )
    if positions and not at.max_context:
        most = longest + at.max_turns * at.max_new_tokens
        if most > positions:
            found.append(
                Finding(
                    "warning",
                    "context",
                    f"there is no [rollout] max_context, and {at.max_turns} turns of "
                    f"{at.max_new_tokens} tokens after a prompt of {longest} can exceed the "
                    f"model's max_position_embeddings = {positions}: set that as max_context.",
                )
            )
    if not found:
        room = f" of the {limit} that fit" if limit else ", and no limit is set"
        found.append(
            Finding(
                "ok",
                "context",
                f"first prompts take up to {longest} tokens, the reference episode "
                f"{parts.episode.tokens if parts.episode else 'is not there'}{room}",
            )
        )
    return found


async def _first_prompts(parts: Parts) -> Sequence[int]:
    lengths = []
    for task in parts.tasks[:MOST_PROMPTS]:
        session = await parts["environment"].start(task)
        lengths.append(len(parts["renderer"].prompt(tuple(session.opening), tuple(session.tools))))
        await session.close()
    return lengths


def _positions(parts: Parts) -> int:
    """`max_position_embeddings` of the model; 0 where it is not known."""
    if parts.folder is None:
        return 0
    record = json.loads((parts.folder / "config.json").read_text(encoding="utf-8"))
    inner = record.get("text_config") or {}
    value = record.get("max_position_embeddings", inner.get("max_position_embeddings", 0))
    return int(value or 0)
