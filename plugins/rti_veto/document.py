"""A text and the views of it that facts are looked for in; each is made once, when first needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache

from attrs import field, frozen

from rti_veto.dates import Date, DateSpan, dates, times
from rti_veto.normalise import clean, fold
from rti_veto.numbers import Number, numbers
from rti_veto.spoken import digits
from rti_veto.words import content_stems

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_DIGIT_RUN = re.compile(r"\d(?:[-_.:/#*()\[\]{}, \t]{0,4}\d)+")
_LETTER_BY_LETTER = re.compile(r"(?<![^\W_])(?:[^\W\d_][-. ,]{1,2}){3,}[^\W\d_](?![^\W_])")
_NOT_ALNUM = re.compile(r"[\W_]+")


class Document:
    """One text: a message, an argument, a tool's schema."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def clean(self) -> str:
        """Normalised, its case kept."""
        return clean(self.text)

    @cached_property
    def folded(self) -> str:
        """Normalised, without case."""
        return fold(self.text)

    @cached_property
    def spoken(self) -> str:
        """`folded` with its number words as digits."""
        return digits(self.folded)

    @cached_property
    def compact(self) -> str:
        """`spoken`, letters and digits alone."""
        return _NOT_ALNUM.sub("", self.spoken)

    @cached_property
    def digit_runs(self) -> frozenset[str]:
        """Digits in a row, whatever signs stand between them, and each group by itself."""
        runs = _DIGIT_RUN.findall(self.spoken)
        whole = {_NOT_ALNUM.sub("", run) for run in runs}
        return frozenset(whole | {group for run in runs for group in re.findall(r"\d+", run)})

    @cached_property
    def letters(self) -> str:
        """`folded`, letters and digits alone."""
        return _NOT_ALNUM.sub("", self.folded)

    @cached_property
    def skeletons(self) -> Mapping[str, str]:
        """Words by what they look like: o and 0, l, i and 1 are one."""
        return {skeleton(word): word for word in self.words}

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The words, case kept, without a possessive ending; at the end those spelled out."""
        words = [w.removesuffix("'s").removesuffix("'S") for w in WORD.findall(self.clean)]
        spelled = _LETTER_BY_LETTER.findall(self.clean)
        return (*words, *(re.sub(r"[\W_]", "", letters) for letters in spelled))

    @cached_property
    def folded_tokens(self) -> tuple[str, ...]:
        """The words without case."""
        return tuple(map(fold, self.tokens))

    @cached_property
    def words(self) -> frozenset[str]:
        """All words without case, those inside identifiers too."""
        return frozenset(self.folded_tokens)

    @cached_property
    def line(self) -> str:
        """The words without case, one space around each: a phrase is in it or not."""
        return f" {' '.join(self.folded_tokens)} "

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers in it."""
        return tuple(numbers(self.spoken))

    @cached_property
    def dates(self) -> tuple[DateSpan, ...]:
        """The dates in it."""
        # open_2025_01_20 is a name of a tool to everything else.
        return tuple(dates(self.spoken.replace("_", " ")))

    @cached_property
    def all_dates(self) -> frozenset[Date]:
        """Every reading of every date."""
        return frozenset(reading for span in self.dates for reading in span.readings)

    @cached_property
    def times(self) -> tuple[tuple[int, bool, tuple[int, int]], ...]:
        """The times of day in it."""
        return tuple(times(self.spoken))

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The stems of its content words, in order; see `rti_veto.words`."""
        return content_stems(self.folded)

    @cached_property
    def places(self) -> Mapping[str, tuple[int, ...]]:
        """Where each stem stands in `stems`."""
        found: dict[str, list[int]] = {}
        for place, stem in enumerate(self.stems):
            found.setdefault(stem, []).append(place)
        return {stem: tuple(places) for stem, places in found.items()}


def skeleton(word: str) -> str:
    """A folded word by what it looks like."""
    return word.translate({ord("o"): "0", ord("l"): "1", ord("i"): "1"})


@lru_cache(maxsize=2048)
def document(text: str) -> Document:
    """The document of a text; one object a text, so that a history is read once, not every turn."""
    return Document(text)


@frozen
class Field:
    """A part of what is being checked. `argument`: a tool argument, or a tool's name."""

    where: str
    document: Document
    argument: bool = False
    value: bool = False
    """An argument's value: not its name, nor the tool's."""
    joined: bool = False
    """Arguments of a call in a row: looked at only for values that were cut in pieces."""


@frozen
class Known:
    """All that the policy could see before the turn, and its own draft."""

    documents: tuple[Document, ...] = field(repr=False)

    def any(self, holds: Callable[[Document], object]) -> bool:
        """Whether any document passes."""
        return any(holds(d) for d in self.documents)

    def word(self, word: str) -> bool:
        """Whether a folded word occurs."""
        return any(word in d.words for d in self.documents)

    def phrase(self, words: tuple[str, ...]) -> bool:
        """Whether folded words occur next to each other."""
        text = f" {' '.join(words)} "
        return any(text in d.line for d in self.documents)

    def number(self, number: Number) -> bool:
        """Whether the value occurs, in whatever form."""
        return any(n.same_as(number) for d in self.documents for n in d.numbers)

    def date(self, date: Date) -> bool:
        """Whether a date occurs that says all this one says."""
        return any(known.agrees(date) for d in self.documents for known in d.all_dates)


def leaves(value: object, keys: bool = True) -> Iterator[str]:
    """Every key and leaf of a JSON-like value as text; any depth, nothing raises."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            for key, inner in reversed(list(item.items())):
                stack += [inner, key] if keys else [inner]
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack += reversed(list(item))
        elif item is not None and not isinstance(item, bool):
            try:
                yield str(item)
            except ValueError:  # an integer of more digits than Python likes to write
                yield format(item, "x") if isinstance(item, int) else ""
