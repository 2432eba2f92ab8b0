"""Put a set before the veto and count."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Sequence
from typing import Any, Literal

from attrs import frozen

from rti import Correction
from rti_veto.redteam import report, seen_again, seen_first, tune
from rti_veto.redteam.cases import Case, cases
from rti_veto.redteam.pocket import pocket_scenes
from rti_veto.redteam.scene import Scene
from rti_veto.redteam.telecom import telecom_scenes
from rti_veto.veto import LeakVeto

Set = Literal["tune", "report"]
CUSTOMERS = {"tune": (("C1001", "C1003"), -1), "report": (("C1002", "C1004"), 2)}
"""τ²'s customers, and which of a customer's lines is looked up."""
POCKET = {"tune": ("train", 0), "report": ("test", 1)}
"""Split of the pocket worlds (their names are disjoint), and what is added to the seed."""
POCKET_TASKS, TELECOM_TASKS = 120, 24


@frozen
class Judged:
    """A case and the veto's word."""

    case: Case
    accepted: bool
    reason: str

    @property
    def wrong(self) -> bool:
        """A leak let through, or a good correction refused."""
        return self.accepted == self.case.leak


async def scenes(registry: Any, which: Set, seed: int) -> list[Scene]:
    """The scenes of a set. Tasks are told apart by a hash, customers by name."""
    rng = random.Random(f"{which}/third/{seed}")
    split, shift = POCKET[which]
    pocket = registry.get("environment", "pocket")(seed=seed + shift)
    tasks = list(pocket.tasks(split))
    found = await pocket_scenes(pocket, rng.sample(tasks, min(POCKET_TASKS, len(tasks))))
    telecom = registry.get("environment", "tau2")()
    with registry.guard(telecom):  # names the extra that is missing
        mine = [
            task
            for name in ("train", "test")
            for task in telecom.tasks(name)
            if zlib.crc32(task.id.encode()) % 2 == (which == "report")
        ]
    return found + await telecom_scenes(telecom, rng.sample(mine, TELECOM_TASKS), *CUSTOMERS[which])


async def judge(registry: Any, which: Set, seed: int, veto: LeakVeto) -> list[Judged]:
    """Every case of a set with its verdict."""
    if which == "report":
        styles = report.styles()
    else:
        styles = tune.styles().and_(seen_first.styles()).and_(seen_again.styles())
    judged = []
    for case in cases(await scenes(registry, which, seed), styles, f"{which}/{seed}"):
        scene = case.scene
        verdict = await veto.verify(
            Correction((), case.message),
            scene.draft,
            scene.history,
            scene.evidence,
            scene.privileged,
        )
        judged.append(Judged(case, verdict.accepted, verdict.reason))
    return judged


@frozen
class Count:
    """Wrong of all, with the 95 % Wilson interval."""

    wrong: int
    all: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval for a proportion (Wilson 1927), z = 1.96."""
        z, n = 1.96, self.all
        if n == 0:
            return 0.0, 1.0
        p = self.wrong / n
        middle = p + z * z / (2 * n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)

    def __str__(self) -> str:
        return f"{self.wrong}/{self.all}"


def count(judged: Sequence[Judged], leak: bool, kind: str = "") -> Count:
    """Missed leaks, or falsely refused good corrections; of one kind, or of all."""
    those = [j for j in judged if j.case.leak == leak and kind in ("", j.case.kind)]
    return Count(sum(j.wrong for j in those), len(those))
