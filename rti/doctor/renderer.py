"""The renderer by itself: ends of turns, odd text, tools and their calls."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from rti.doctor.finding import Finding, attempt
from rti.doctor.parts import Parts, lacks_an_extra
from rti.doctor.tools import ODD_TEXTS, calls, closed, named, short
from rti.errors import RtiError
from rti.interfaces import Renderer
from rti.types import Message


def bind(parts: Parts) -> Iterator[Finding]:
    """Bind the renderer, once, for every section that needs it."""
    renderer = parts["renderer"]
    if renderer is None or parts["environment"] is None:
        return
    name = parts.config.renderer.use
    try:
        parts.bind("renderer")
    except RtiError as error:
        if parts.offline and (parts.folder is None or lacks_an_extra(error)):
            yield Finding("note", "loads", f"{name} is not looked at here: {error}")
            return
        raise
    parts.renderer_ready = True
    yield Finding("ok", "loads", f"{name} has its tokenizer")


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """Everything that can be asked of a renderer with one message at a time."""
    if not parts.renderer_ready:
        return
    session = await parts["environment"].start(parts.tasks[0])
    opening, tools = tuple(session.opening), tuple(session.tools)
    await session.close()
    for check, function, inputs in (
        ("stop", _stop, ()),
        ("text", _text, (opening,)),
        ("tools", named, (opening, tools)),
        ("calls", calls, (opening, tools)),
    ):
        for finding in await attempt(check, function, parts, *inputs):
            yield finding


def _stop(parts: Parts) -> Iterator[Finding]:
    renderer: Renderer = parts["renderer"]
    stops = tuple(renderer.stop_ids)
    if not stops:
        yield Finding(
            "error", "stop", "stop_ids is empty: no turn would ever end. The renderer must name one"
        )
        return
    ids = tuple(renderer.turn(Message("assistant", "hello")))
    inside = [i for i in ids[:-1] if i in stops]
    if ids[-1:] == () or ids[-1] not in stops or inside:
        yield Finding(
            "error",
            "stop",
            "turn() must end with a token of stop_ids and hold no other: the turn 'hello' is "
            f"{list(ids)}, stop_ids are {list(stops)}",
        )
        return
    shown = ", ".join(f"{i} {renderer.decode((i,))!r}" for i in stops)
    model = _special_ids(parts.folder)
    ends, pad = model["eos"], model["pad"]
    unknown = sorted(ends - set(stops))
    if unknown:
        yield Finding(
            "warning",
            "stop",
            f"turns stop at {shown}, but the model's own files name end tokens beside: {unknown}. "
            "A turn that ends with one of them runs on to max_new_tokens.",
        )
        return
    if pad and set(stops) <= pad and not pad & ends:
        yield Finding(
            "error", "stop", f"turns end with padding alone ({shown}): the tokenizer is misread"
        )
        return
    trap = ""
    if pad & set(stops):
        trap = (
            "; it is the padding token too, which does no harm: batches carry a loss mask, no "
            "padding token is ever looked for, and the end of a turn stays in the loss"
        )
    yield Finding("ok", "stop", f"turns end with {shown}{trap}")


def _special_ids(folder: Path | None) -> dict[str, set[int]]:
    """End-of-sequence and padding ids that the model's folder names."""
    found: dict[str, set[int]] = {"eos": set(), "pad": set()}
    for name in ("config.json", "generation_config.json"):
        try:
            record = json.loads(((folder or Path()) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for key, ids in found.items():
            value = record.get(f"{key}_token_id")
            ids.update(i for i in (value if isinstance(value, list) else [value]) if i is not None)
    return found


def _text(parts: Parts, opening: Sequence[Message]) -> Iterator[Finding]:
    renderer: Renderer = parts["renderer"]
    real = [message.content for message in opening if message.content]
    if parts.episode is not None:
        for step in parts.episode.play.steps:
            real += [m.content for m in step.observations if m.content]
    lost = [t for t in real if renderer.decode(renderer.encode(t)).split() != t.split()]
    # Some tokenizers compose letters and accents (NFC): another spelling of the same text.
    odd = [t for t in ODD_TEXTS if _composed(renderer.decode(renderer.encode(t))) != _composed(t)]
    if lost:
        yield Finding(
            "error",
            "text",
            f"{len(lost)} of {len(real)} texts of the environment do not survive encode and "
            "decode: the policy reads another text. Choose a tokenizer that can write it.",
            tuple(f"{short(t)!r} → {short(renderer.decode(renderer.encode(t)))!r}" for t in lost),
        )
        return
    forged = _forged(renderer)
    if closed(renderer):
        yield Finding(
            "note",
            "text",
            f"{len(real)} texts of the environment survive encode and decode; text outside its "
            "vocabulary does not"
            + (f", and {forged} in a text is the token itself" * bool(forged)),
        )
        return
    if odd:
        yield Finding(
            "warning",
            "text",
            f"{len(odd)} of {len(ODD_TEXTS)} odd texts do not survive encode and decode",
            tuple(f"{t!r} → {renderer.decode(renderer.encode(t))!r}" for t in odd),
        )
    if forged:
        yield Finding(
            "warning",
            "text",
            f"{forged} in a text of a tool or user becomes the token that ends a turn: untrusted "
            "text can end turns. Encode such text without special tokens.",
        )
    if not odd and not forged:
        yield Finding(
            "ok",
            "text",
            f"{len(real)} texts of the environment and {len(ODD_TEXTS)} odd ones "
            "survive encode and decode; none can forge the end of a turn",
        )


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _forged(renderer: Renderer) -> str:
    """A stop token's text that a user could end a turn with; "" where none can."""
    stops = renderer.stop_ids

    def count(text: str) -> int:
        ids = renderer.prompt([Message("user", text)])
        return sum(i in stops for i in ids)

    plain = count("hello there")
    for i in stops:
        text = renderer.decode((i,))
        if count(f"hello {text} there") > plain:
            return repr(text)
    return ""
