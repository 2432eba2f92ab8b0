"""Dates and times as they are written: ISO, month names, slashes either way round, partial ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_MONTHS = {
    name[:n]: i
    for i, name in enumerate(
        "january february march april may june july august september october november "
        "december".split(),
        1,
    )
    for n in {3, len(name)}
} | {"sept": 9}
_M = "|".join(sorted(_MONTHS, key=len, reverse=True))
_D = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_Y = r"(?P<y>\d{4}|'?\d{2})(?![\d:]|\.\d)"
_S = r"(?:[-/., _'()\n]{0,3}(?:(?:of|the|in|day)[\W_]+){0,2})"
"""What may stand between a day, a month's name and a year."""
_WORDY = tuple(
    re.compile(rf"(?<![\w.]){pattern}(?!\w)")
    for pattern in (
        rf"{_D}{_S}(?P<m>{_M})(?:{_S}{_Y})?",
        rf"(?P<m>{_M}){_S}{_D}(?:{_S}{_Y})?",
        rf"(?P<y>\d{{4}}){_S}(?P<m>{_M})(?:{_S}{_D})?",
        rf"(?P<m>{_M}){_S}(?P<y>\d{{4}})",
        r"day (?P<d>\d{1,2})\W+(?:of )?month (?P<m>\d{1,2})(?:\W+(?:of )?year (?P<y>\d{4}))?",
        r"(?:year (?P<y>\d{4})\W+)?month (?P<m>\d{1,2})\W+day (?P<d>\d{1,2})",
    )
)
_ISO = re.compile(
    r"(?<![\w-])(?P<y>(?:19|20|21)\d\d) ?[-/., ] ?(?P<m>\d{1,2}) ?[-/., ] ?(?P<d>\d{1,2})(?=$|\D)"
)
_COMPACT = re.compile(r"(?<!\d)(?P<y>(?:19|20)\d\d)(?P<m>[01]\d)(?P<d>[0-3]\d)(?!\d)")
_COMPACT_YEAR_LAST = re.compile(r"(?<!\d)(\d\d)()(\d\d)((?:19|20)\d\d)(?!\d)")
_HAN = re.compile(r"(?:(?P<y>\d{4})年)?(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?")
_NUMERIC = re.compile(r"(?<![\w/.-])(\d{1,2})( ?[-/.,] ?| )(\d{1,2})\2(\d{4}|\d{2})(?![\w/-]|\.\d)")
_MONTH_YEAR = re.compile(r"(?<![\w/.-])(?P<m>\d{1,2})[-/.](?P<y>(?:19|20)\d\d)(?![\w/-])")
_YEAR_MONTH = re.compile(r"(?<![\w/.-])(?P<y>(?:19|20)\d\d)[-/](?P<m>\d{1,2})(?![\w/-])")
_DAY_MONTH = re.compile(r"(?<![\w/.$-])(\d{1,2})[/.](\d{1,2})(?![\w/%]|\.\d)")
_TIME = re.compile(
    r"(?<![\w:.])(\d{1,2})[:.](\d{2})(?::\d{2}(?:\.\d+)?)? ?([ap])\.?m\b"
    r"|(?<![\d:])(\d{1,2}):(\d{2})(?::\d{2}(?:\.\d+)?)?(?![\d:])"
)


_PATTERNS = (
    _ISO, *_WORDY, _HAN, _COMPACT, _COMPACT_YEAR_LAST, _NUMERIC, _MONTH_YEAR, _YEAR_MONTH,
    _DAY_MONTH,
)  # fmt: skip


class Date(NamedTuple):
    """A date; what was not written is None."""

    year: int | None
    month: int
    day: int | None

    def agrees(self, other: Date) -> bool:
        """Whether all that `other` says is said here too."""
        return all(b is None or a == b for a, b in zip(self, other, strict=True))

    def meets(self, other: Date) -> bool:
        """Whether the two may be one date, with something specific in common."""
        shared = [(a, b) for a, b in zip(self, other, strict=True) if None not in (a, b)]
        return len(shared) > 1 and all(a == b for a, b in shared)


class DateSpan(NamedTuple):
    """A place in a text and the dates it may mean: 05/03/2024 is two."""

    readings: tuple[Date, ...]
    start: int
    stop: int
    digits: bool = False
    """Eight digits in a row, which may be an id as well."""


def dates(text: str, bare: bool = True) -> Iterator[DateSpan]:
    """The dates in folded text; `bare` also reads "11/22", which is often something else."""
    taken: list[tuple[int, int]] = []
    for pattern in _PATTERNS:
        if pattern is _DAY_MONTH and not bare:
            continue
        for found in pattern.finditer(text):
            readings = tuple(dict.fromkeys(d for d in _read(pattern, found) if _valid(d)))
            # With a month's name, overlaps are told apart by nobody: "first, Feb 28".
            free = pattern in _WORDY or all(
                found.end() <= start or found.start() >= stop for start, stop in taken
            )
            if readings and free:
                taken.append(found.span())
                digits = pattern in {_COMPACT, _COMPACT_YEAR_LAST}
                yield DateSpan(readings, *found.span(), digits)


def times(text: str) -> Iterator[tuple[int, bool, tuple[int, int]]]:
    """Minutes after midnight, whether am or pm is certain, and where it stands."""
    for found in _TIME.finditer(text):
        hour, minute = int(found[1] or found[4]), int(found[2] or found[5])
        if hour > 23 or minute > 59:
            continue
        if found[3]:
            hour = hour % 12 + 12 * (found[3] == "p")
        yield hour * 60 + minute, bool(found[3]) or hour > 12 or hour == 0, found.span()


def _read(pattern: re.Pattern[str], found: re.Match[str]) -> Iterator[Date]:
    if pattern in {_NUMERIC, _COMPACT_YEAR_LAST}:
        a, b, c = int(found[1]), int(found[3]), found[4]
        yield from (Date(_year(c), a, b), Date(_year(c), b, a))
        if len(c) == 2:
            yield Date(_year(found[1]), b, int(c))
    elif pattern is _DAY_MONTH:
        a, b = int(found[1]), int(found[2])
        yield from (Date(None, a, b), Date(None, b, a))
    else:
        part = found.groupdict()
        year, month, day = part.get("y"), part["m"], part.get("d")
        yield Date(
            _year(year) if year else None,
            _MONTHS.get(month) or int(month),
            int(day) if day else None,
        )


def _year(text: str) -> int:
    number = int(text.strip("'"))
    return number if number > 99 else number + (2000 if number < 50 else 1900)


def _valid(date: Date) -> bool:
    year, month, day = date
    if year is None and day is None:
        return False
    return 1 <= month <= 12 and (day is None or 1 <= day <= 31) and (year or 2000) > 1000
