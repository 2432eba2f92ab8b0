"""What a secret text gives away: ids, numbers, dates, names, and its wording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

from attrs import field, frozen

from rti_veto.dates import Date, dates, times
from rti_veto.document import Document, Field, Known
from rti_veto.ids import ids
from rti_veto.names import names
from rti_veto.normalise import clean, fold
from rti_veto.numbers import Number
from rti_veto.wording import wordings


class Fact(Protocol):
    """Something that may be given away: where it stands in a text, and whether that was known."""

    @property
    def name(self) -> str:
        """Its kind."""
        ...

    @property
    def value(self) -> str:
        """What it is, for people."""
        ...

    def find(self, at: Field) -> Iterator[str]:
        """What of it stands in a field; one of these may be known and another not."""
        ...

    def known(self, found: str, known: Known) -> bool:
        """Whether what was found could be known."""
        ...


@frozen
class Amount:
    """A number that is not ordinary."""

    number: Number
    name: str = field(init=False, default="number")

    @property
    def value(self) -> str:
        """As it was written."""
        return self.number.text.strip()

    def find(self, at: Field) -> Iterator[str]:
        """The numbers there that give this one away."""
        for other in () if at.joined else at.document.numbers:
            if self.number.tells(other):
                yield other.text.strip()

    def known(self, found: str, known: Known) -> bool:
        """Whether the value that was found, or this one, stood somewhere."""
        if known.number(self.number):
            return True
        return any(known.number(n) for n in Document(found).numbers)


@frozen
class Day:
    """A date, told in full, or by any two of its parts, or by its year."""

    readings: tuple[Date, ...]
    text: str
    name: str = field(init=False, default="date")

    @property
    def value(self) -> str:
        """As it was written."""
        return self.text.strip()

    def find(self, at: Field) -> Iterator[str]:
        """The dates there that meet this one, and its year."""
        document = at.document
        for span in document.dates:
            if any(mine.meets(theirs) for mine in self.readings for theirs in span.readings):
                yield document.spoken[span.start : span.stop]
        years = {str(d.year) for d in self.readings if d.year}
        inside = [range(s.start, s.stop) for s in document.dates]
        for match in re.finditer(r"(?<![\w.,-])\d{4}(?![\w-]|[.,]\d)", document.spoken):
            if match[0] in years and not any(match.start() in r for r in inside):
                yield match[0]

    def known(self, found: str, known: Known) -> bool:
        """Whether one reading of what was found was written before; a year, anywhere."""
        if re.fullmatch(r"\d{4}", found):
            return known.any(lambda d: re.search(rf"(?<!\d){found}(?!\d)", d.spoken))
        spans = list(dates(found.replace("_", " ")))
        # "5 February 2025" holds "February 2025": all of it must have been known.
        most = max((span.stop - span.start for span in spans), default=0)
        whole = [span for span in spans if span.stop - span.start == most]
        return any(known.date(reading) for span in whole for reading in span.readings)


@frozen
class Clock:
    """A time of day, in minutes."""

    minutes: int
    certain: bool
    text: str
    name: str = field(init=False, default="time")

    @property
    def value(self) -> str:
        """As it was written."""
        return self.text.strip()

    def find(self, at: Field) -> Iterator[str]:
        """The same time there, on a clock of 12 or of 24 hours."""
        for minutes, certain, (start, stop) in at.document.times:
            if self._is(minutes, certain):
                yield at.document.spoken[start:stop]

    def known(self, found: str, known: Known) -> bool:
        """Whether it was written before."""
        return known.any(lambda d: any(self._is(m, c) for m, c, _ in d.times))

    def _is(self, minutes: int, certain: bool) -> bool:
        if self.certain and certain:
            return self.minutes == minutes
        return self.minutes % 720 == minutes % 720


@frozen
class Limits:
    """From where on something counts."""

    ngram: int = 5
    small: int = 10


_QUOTED = re.compile(r"'([^'\n]{1,60})'(?!\w)|\"([^\"\n]{1,60})\"")
_PAIR = re.compile(r"\b\w+=([^\s,()'\"]+)")


@lru_cache(maxsize=512)
def secrets(
    privileged: tuple[str, ...], evidence: tuple[str, ...], limits: Limits
) -> tuple[Fact, ...]:
    """All facts of privileged strings and of the evidence's, each once."""
    made = [fact for text in privileged for fact in _secret(text, limits)]
    made += [fact for text in evidence for fact in _told(text, limits)]
    return tuple(dict.fromkeys(made))


@lru_cache(maxsize=512)
def observed(texts: tuple[str, ...], limits: Limits) -> tuple[Fact, ...]:
    """The facts in what a turn's own calls returned; their wording is nobody's secret."""
    made = [f for text in texts for f in _facts(text, limits)]
    return tuple(dict.fromkeys(f for f in made if not getattr(f, "plain", False)))


# Tasks of one environment share most of their texts.
@lru_cache(maxsize=4096)
def _secret(text: str, limits: Limits) -> tuple[Fact, ...]:
    made = [*_facts(text, limits), *wordings(fold(text), limits.ngram)]
    for value in _values(text):
        made += _facts(value, limits, whole=True, answer=value == text)
    return tuple(made)


@lru_cache(maxsize=4096)
def _told(text: str, limits: Limits) -> tuple[Fact, ...]:
    return (*_facts(text, limits), *wordings(fold(text), limits.ngram))


def _values(text: str) -> Iterator[str]:
    """Values that a privileged string holds apart: itself, when it is short; what it quotes."""
    if len(text.split()) <= 5 and not re.search(r"\w\(.*\)\Z|^\[|=", text.strip()):
        yield text
    for found in _QUOTED.finditer(text):
        value = found[1] or found[2]
        if len(value.split()) <= 5:
            yield value
    for found in _PAIR.finditer(text):
        if found[1] not in {"True", "False", "None", "true", "false", "null"}:
            yield found[1]


def _facts(text: str, limits: Limits, whole: bool = False, answer: bool = False) -> Iterator[Fact]:
    """The facts of one text. `answer`: the text is nothing but a secret, however ordinary."""
    cleaned, spoken = clean(text), Document(text).spoken
    for span in dates(spoken, bare=False):
        yield Day(span.readings, spoken[span.start : span.stop])
    for minutes, certain, (start, stop) in times(spoken):
        yield Clock(minutes, certain, spoken[start:stop])
    # What is a date is no id and no number: 2025-01-15 gives no 15 away.
    taken = [(s.start, s.stop) for s in dates(fold(text), bare=False) if not s.digits]
    taken += [span for *_, span in times(fold(text))]
    rest = _without(cleaned, taken) if len(cleaned) == len(fold(text)) else cleaned
    found = tuple(ids(rest, whole))
    yield from found
    yield from names(rest, whole)
    for made in found:
        if made.kind == "digits" and made.value != made.compact:
            rest = rest.replace(made.value, " ")  # the groups of a telephone number are no amounts
    for number in Document(rest).numbers:
        if answer or not number.small(limits.small):
            yield Amount(number)


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    for start, stop in spans:
        text = text[:start] + " " * (stop - start) + text[stop:]
    return text
