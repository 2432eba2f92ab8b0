"""TEST FAKES, loaded as a single-file plug-in: a Validator that flags everything, and a Corrector
that replays the gold turns of a task.

They exist to drive the real stack (policy, renderer, environment, gate, weighter, trainer) along
the correction path with a model that is too small to find it by itself. They are told the answer,
so nothing that they make says anything about learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from rti import Correction, Diagnosis, Message, Provenance, hookimpl

GOLD: dict[str, tuple[Message, ...]] = {}
"""Task id → the gold reference agent's messages, filled in by the test beforehand."""


@frozen
class FlagsEverything:
    """Every turn is harmful."""

    async def validate(self, turn: Any, history: Any, evidence: Any) -> Diagnosis:
        return Diagnosis(True, "fake", "replay the gold turn")


@define
class GoldReplay:
    """The gold turn of the same index, tokenised once by the student's renderer."""

    _context: Any = field(init=False, default=None)

    def bind(self, context: Any) -> None:
        self._context = context

    async def correct(
        self, draft: Any, diagnosis: Diagnosis, history: Any, tools: Any
    ) -> Correction | None:
        gold = GOLD[history.key.task]
        if draft.index >= len(gold):
            return None
        renderer = self._context.renderer
        hint = renderer.encode(f"\n[{diagnosis.direction}]\n")
        return Correction(
            renderer.turn(gold[draft.index]),
            gold[draft.index],
            corrector_prompt_ids=history.prompt_ids + hint,
            provenance=Provenance("correction", model="the environment's gold agent"),
        )


@hookimpl
def rti_validators() -> Mapping[str, Any]:
    return {"flags-everything": FlagsEverything}


@hookimpl
def rti_correctors() -> Mapping[str, Any]:
    return {"gold-replay": GoldReplay}
