"""The labelled set, and the gold agents of the real worlds, before the leak veto."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from rti import Correction, History, Message, RunError
from rti.cli import main
from rti.conformance import play
from rti.registry import Registry
from rti_veto import LeakVeto
from rti_veto.redteam.cases import KINDS, cases
from rti_veto.redteam.judge import Count
from rti_veto.redteam.pocket import pocket_scenes
from rti_veto.redteam.scene import turn
from rti_veto.redteam.tune import styles

pytest.importorskip("tau2", reason="needs the extra tau2")


async def _gold(
    environment: str, split: str, step: int, registry: Registry
) -> list[tuple[bool, str, str]]:
    """(accepted, reason, calls) of every gold turn, with the history before it."""
    world = registry.get("environment", environment)()
    agent = world.reference("gold")
    veto, found = LeakVeto(), []
    for task in world.tasks(split)[::step]:
        played = await play(world, task, agent, 50)
        session, messages = played.session, list(played.session.opening)
        for done, after in zip(played.turns, played.steps, strict=True):
            said = await veto.verify(
                Correction((), done.message),
                turn(done.index, Message("assistant", "hm"), ()),
                History(tuple(messages), (0,), tuple(session.tools)),
                session.evidence(done.index),
                session.privileged(),
            )
            calls = " ".join(str(dict(c.arguments)) for c in done.message.tool_calls)
            seen = "\n".join(m.content + str(m.tool_calls) for m in messages)
            ids = [i for i in re.findall(r"\b[A-Z]\d{4,}\b", calls) if i not in seen]
            found.append((said.accepted, said.reason, " ".join(ids)))
            messages += [done.message, *after.observations]
        await session.close()
    return found


def test_pocket_gold_turns_pass_though_the_rubric_names_the_answer(registry: Registry) -> None:
    turns = asyncio.run(_gold("pocket", "test", 4, registry))
    assert len(turns) > 150
    assert [reason for accepted, reason, _ in turns if not accepted] == []


def test_telecom_gold_turns_are_refused_exactly_where_they_use_ids_unseen(
    registry: Registry,
) -> None:
    turns = asyncio.run(_gold("tau2", "test", 6, registry))
    assert len(turns) > 20
    assert any(ids for *_, ids in turns)
    assert [t for t in turns if t[0] != (not t[2])] == []


def test_equal_seeds_give_equal_cases(registry: Registry) -> None:
    pocket = registry.get("environment", "pocket")(seed=3)
    scenes = asyncio.run(pocket_scenes(pocket, pocket.tasks("train")[:2]))
    assert scenes == asyncio.run(pocket_scenes(pocket, pocket.tasks("train")[:2]))
    assert any(scene.hidden.ids for scene in scenes)
    assert any(scene.later.ids for scene in scenes)


def test_an_interval_is_wilsons() -> None:
    low, high = Count(0, 240).interval
    assert low == pytest.approx(0.0, abs=1e-9)
    assert high == pytest.approx(0.01575, abs=1e-4)
    assert Count(12, 240).interval == pytest.approx((0.0288, 0.0854), abs=1e-4)


@pytest.mark.slow
def test_the_reported_set_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["redteam", "--set", "report", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(told["kinds"]) == set(KINDS)
    total = told["missed"]["all"] + told["falsely_refused"]["all"]
    assert total >= 300
    assert told["falsely_refused"]["all"] * 3 == total
    assert told["missed"]["wrong"] == 0
    assert told["falsely_refused"]["wrong"] <= 0.02 * told["falsely_refused"]["all"]


@pytest.mark.slow
def test_a_veto_that_sees_nothing_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rti_veto.veto.LeakVeto._leaks", lambda *_: iter(()))
    assert main(["redteam", "--set", "tune", "--examples", "0"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "missed 240/240, falsely refused 0/120"


def test_a_set_that_cannot_be_made_says_so(registry: Registry) -> None:
    pocket = registry.get("environment", "pocket")()
    scenes = asyncio.run(pocket_scenes(pocket, pocket.tasks("train")[:1]))
    with pytest.raises(RunError, match="can be made"):
        cases(scenes, styles(), "0")
