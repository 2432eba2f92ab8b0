"""A corrector by rule: in place of a harmful turn, say what the Validator advises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field

from rti import (
    Context,
    Correction,
    Diagnosis,
    History,
    Message,
    Renderer,
    Tool,
    Turn,
    hookimpl,
    option,
)


def has_slot(text: str) -> str | None:
    """The check of `say`: None, or what it must be."""
    return None if "{direction}" in text else "a text with {direction} in it"


@define
class Echo:
    """Says the Validator's direction and calls no tool. The draft's reasoning stays."""

    say: str = option("{direction}", "What to say; {direction} is the Validator's.", has_slot)
    renderer: Renderer = field(init=False, repr=False)

    def bind(self, context: Context) -> None:
        """Take the run's renderer."""
        self.renderer = context.renderer

    async def correct(
        self, draft: Turn, diagnosis: Diagnosis, history: History, tools: Sequence[Tool]
    ) -> Correction | None:
        """Nothing without a direction. No corrector prompt, so every token weighs 1."""
        direction = diagnosis.direction.strip()
        if not direction:
            return None
        text = self.say.replace("{direction}", direction)
        ids = self.renderer.turn(Message("assistant", text, draft.message.reasoning))
        return Correction(ids, self.renderer.parse(ids))


@hookimpl
def rti_correctors() -> Mapping[str, type]:
    """What this plug-in brings."""
    return {"echo": Echo}
