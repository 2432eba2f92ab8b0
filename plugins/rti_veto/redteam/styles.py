"""What a set of styles is: ways to write a value, and places to put it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from attrs import asdict, frozen

from rti import ToolCall

Write = Callable[[random.Random, str], str]
MONTHS = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = ". . twenty thirty forty fifty sixty seventy eighty ninety".split()


@frozen
class Styles:
    """One set. Each entry of a sequence is one way."""

    ids: Sequence[Write]
    amounts: Sequence[Write]
    dates: Sequence[Write]
    phones: Sequence[Write]
    names: Sequence[Write]
    wording: Sequence[Write]
    say: Sequence[str]
    """Sentences with a gap for a value."""
    quote: Sequence[str]
    """Frames around wording."""
    arguments: Sequence[Callable[[random.Random, str], ToolCall]]
    ordinary: Mapping[str, Sequence[str]]
    """Good sentences by kind that hold no value at all."""

    def and_(self, other: Styles) -> Styles:
        """The ways of both."""
        mine, theirs = asdict(self, recurse=False), asdict(other, recurse=False)
        both = {name: (*mine[name], *theirs[name]) for name in mine if name != "ordinary"}
        kinds = {k: (*self.ordinary[k], *other.ordinary[k]) for k in self.ordinary}
        return Styles(**both, ordinary=kinds)


def in_words(number: int) -> str:
    """A whole number below a million in English words."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, unit = divmod(number, 10)
        return _TENS[tens] + (f"-{_SMALL[unit]}" if unit else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{_SMALL[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    return f"{in_words(thousands)} thousand" + (f" {in_words(rest)}" if rest else "")
