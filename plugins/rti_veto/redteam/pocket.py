"""Scenes of the pocket worlds: gold rollouts, cut before every turn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rti import Environment, History, Message, Task
from rti.conformance import play
from rti_veto.redteam.scene import Material, Scene, turn

_ID = re.compile(r"\bk\d+\b")


async def pocket_scenes(environment: Environment, tasks: Sequence[Task]) -> list[Scene]:
    """One scene a turn. The final id is hidden until the world has told it; then it is open."""
    agent = environment.reference("gold")
    assert agent is not None
    scenes: list[Scene] = []
    for task in tasks:
        played = await play(environment, task, agent, 8)
        session = played.session
        messages: list[Message] = list(session.opening)
        for t, step in zip(played.turns, played.steps, strict=True):
            evidence, privileged = session.evidence(t.index), session.privileged()
            seen = " ".join(m.content for m in messages)
            told = " ".join(m.content for m in step.observations)
            hidden = [i for i in privileged.facts if i not in seen.split()]
            scenes.append(
                Scene(
                    "pocket",
                    task.id,
                    History(tuple(messages), (0,), tuple(session.tools)),
                    turn(t.index, t.message, step.observations),
                    evidence,
                    privileged,
                    hidden=Material(ids=tuple(hidden), wording=(evidence.text,) if hidden else ()),
                    open=Material(
                        ids=tuple(_ID.findall(seen)),
                        wording=tuple(m.content for m in messages),
                    ),
                    later=Material(ids=tuple(i for i in _ID.findall(told) if i not in seen)),
                )
            )
            messages += [t.message, *step.observations]
    return scenes
