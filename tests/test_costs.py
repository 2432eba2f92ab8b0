"""`rti costs`: episodes a second and megabytes a session, of any environment."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rti import Evidence, Message, Privileged, Step, Task
from rti.cli import main
from rti.costs import measure

MEGABYTE = 2**20


class Heavy:
    """A session of three turns that holds two megabytes, one of them from its last turn on."""

    live = most = scored = 0

    def __init__(self) -> None:
        self.weight = [bytearray(MEGABYTE)]
        self.turns = 0
        Heavy.live += 1
        Heavy.most = max(Heavy.most, Heavy.live)

    opening, tools = (Message("user", "Go."),), ()

    async def step(self, turn: Any) -> Step:
        await asyncio.sleep(0)
        self.turns += 1
        if self.turns == 3:
            self.weight.append(bytearray(MEGABYTE))
        return Step((), done=self.turns == 3)

    def evidence(self, k: int) -> Evidence:
        return Evidence("", {})

    def privileged(self) -> Privileged:
        return Privileged(())

    def score(self) -> float:
        Heavy.scored += 1
        return 1.0

    async def close(self) -> None:
        Heavy.live -= 1


class Gym:
    async def start(self, task: Task) -> Heavy:
        return Heavy()


def test_weighs_and_counts_whole_episodes() -> None:
    Heavy.live = Heavy.most = Heavy.scored = 0
    say = Message("assistant", "Hm.")
    found = asyncio.run(
        measure(Gym(), [Task("a"), Task("b")], lambda session: say, 4, 3)  # type: ignore[arg-type]
    )
    assert found.turns_a_second == pytest.approx(3 * found.episodes_a_second)
    assert found.session_mb == pytest.approx(2, rel=0.1)
    assert found.peak_mb == pytest.approx(8, rel=0.1)
    assert (Heavy.live, Heavy.most) == (0, 4)
    assert Heavy.scored == 4 * (3 + 3 + 1)  # warming up, timing, weighing


def test_an_episode_without_an_end_is_left() -> None:
    class Endless(Heavy):
        async def step(self, turn: Any) -> Step:
            self.turns += 1
            return Step(())

    class Place:
        async def start(self, task: Task) -> Heavy:
            return Endless()

    say = Message("assistant", "Hm.")
    found = asyncio.run(measure(Place(), [Task("a")], lambda session: say, 1, 1))  # type: ignore[arg-type]
    assert found.turns_a_second == pytest.approx(200 * found.episodes_a_second)


def test_prints_a_row_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--sessions", "2", "--rounds", "1"]
    assert main(["costs", "pocket", "navigation,seed=3", *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "MB, 2 sessions" in lines[0]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["pocket", "navigation,seed=3"]
    assert main(["costs", "pocket", "--json", *small]) == 0
    assert json.loads(capsys.readouterr().out)["pocket"]["episodes_a_second"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pokcet"], "Did you mean 'pocket'"),
        (["pocket,sede=3"], "sede"),
        (["pocket,seed"], "'seed' in 'pocket,seed': wanted OPTION=VALUE"),
        (["pocket", "--split", "dev"], "'dev'"),
        (["pocket", "--sessions", "0"], "--sessions 0"),
        (["pocket", "--rounds", "-1"], "--rounds -1"),
    ],
)
def test_says_what_is_wrong(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["costs", *words]) == 2
    assert told in capsys.readouterr().err
