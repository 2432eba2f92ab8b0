"""Numbers as they are written: separators, decimals, currencies, percent, units.

"1,000", "1.000" and "1 000" may be one number; "12.8 GB" and "12,800 MB" are. A number that can be
read in two ways keeps both readings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from attrs import frozen

LONGEST = 40
"""More digits than this make an id, not a number."""

_CURRENCIES = {"$": "usd", "us$": "usd", "usd": "usd", "€": "eur", "eur": "eur", "£": "gbp",
               "gbp": "gbp", "¥": "jpy", "jpy": "jpy", "₹": "inr", "inr": "inr"}  # fmt: skip
_WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "% percent pct": ("%", ("1",)),
    "$ usd dollar dollars buck bucks": ("usd", ("1",)),
    "cent cents": ("usd", ("0.01",)),
    "€ eur euro euros": ("eur", ("1",)),
    "£ gbp pound pounds quid": ("gbp", ("1",)),
    "kb kilobyte kilobytes kib": ("data", ("1000", "1024")),
    "mb megabyte megabytes meg megs mib": ("data", ("1000000", "1048576")),
    "gb gig gigs gigabyte gigabytes gib": ("data", ("1000000000", "1073741824", "1024000000")),
    "tb terabyte terabytes tib": ("data", ("1000000000000", "1099511627776")),
    "kbps": ("rate", ("1000",)),
    "mbps mbit": ("rate", ("1000000",)),
    "gbps gbit": ("rate", ("1000000000",)),
    "s sec secs second seconds": ("time", ("1",)),
    "min mins minute minutes": ("time", ("60",)),
    "h hr hrs hour hours": ("time", ("3600",)),
    "day days": ("time", ("86400",)),
    "week weeks": ("time", ("604800",)),
    "month months": ("month", ("1",)),
    "year years yr yrs": ("month", ("12",)),
    "mm": ("length", ("0.001",)),
    "cm": ("length", ("0.01",)),
    "m metre metres meter meters": ("length", ("1",)),
    "km kilometre kilometres kilometer kilometers": ("length", ("1000",)),
    "mi mile miles": ("length", ("1609.344",)),
    "mg": ("mass", ("0.001",)),
    "g gram grams": ("mass", ("1",)),
    "kg kilo kilos kilogram kilograms": ("mass", ("1000",)),
}
UNITS = {word: unit for words, unit in _WORDS.items() for word in words.split()}
_FACTORS: dict[str, set[Decimal]] = {}
for _dimension, _by in _WORDS.values():
    _FACTORS.setdefault(_dimension, set()).update(map(Decimal, _by))
_MULTIPLES = {"k": 3, "thousand": 3, "hundred": 2, "million": 6, "mio": 6, "billion": 9, "bn": 9}
COMMON_TIMES = {15, 20, 24, 30, 45, 48, 60, 72, 90}
"""Of seconds, minutes, hours or days: "try again in 30 minutes" says nothing about a 30."""

_MONEY = re.compile(
    r"(?:[$€£] ?)?\b(\d+) ?(?:dollars?|bucks|euros?|pounds?|usd)?,?(?: and)? "
    r"(\d{1,2}) ?(cents?|pence)\b"
)
_NUMBER = re.compile(
    r"(?P<money>us\$|[$€£¥₹]|\b(?:usd|eur|gbp|jpy|inr)) ?(?P<a>\d[\d.,' ]*)"
    r"|(?<![\w.])(?P<b>\d[\d.,' ]*)"
)
_SHAPE = re.compile(
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,3}(?:\.\d{3})+(?:,\d+)?(?!\d)"
    r"|\d{1,3}(?:'\d{3})+(?:[.,]\d+)?(?!\d)|\d{1,3}(?: \d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)?"
)
_ENUMERATOR = re.compile(r"^[ #*-]*\d{1,2}[.)](?= )", re.MULTILINE)
_AFTER = re.compile(r"[ -]?(?P<word>[a-z]+|%|€|\$|£)")


@frozen
class Number:
    """A number: its readings, its dimension ("" where none is written) and the text it stood in."""

    readings: frozenset[Decimal]
    dimension: str
    scaled: frozenset[Decimal]
    """The readings in the dimension's base unit."""
    text: str
    span: tuple[int, int]

    def small(self, limit: int) -> bool:
        """A whole number that anyone might write, from 0 to `limit`."""
        return all(r == r.to_integral_value() and r <= limit for r in self.readings)

    def tells(self, other: Number) -> bool:
        """Whether `other`, in somebody's words, gives this number away: equal, or rounded."""
        mine, theirs = self.dimension, other.dimension
        if mine and theirs and mine != theirs:
            return False
        if not mine and other._common():
            return False
        if mine and theirs:
            return bool(self.scaled & other.scaled) or self._rounded(other)
        if self.readings & other.readings or self._rounded(other):
            return True
        # 85, of which nobody says that it is dollars, is 8500 cents.
        if bool(mine) != bool(theirs) and (self._elsewise() & other.readings):
            return True
        if theirs and (self.readings & other._elsewise()):
            return True
        return "%" in (mine, theirs) and bool(
            {r / 100 for r in (self if mine == "%" else other).readings}
            & (other if mine == "%" else self).readings
        )

    def same_as(self, other: Number) -> bool:
        """Whether the two are one value, in whatever unit either is written."""
        return bool(self.readings & other.readings) or (
            self.dimension == other.dimension != "" and bool(self.scaled & other.scaled)
        )

    def _elsewise(self) -> frozenset[Decimal]:
        """The value in each unit of its dimension."""
        return frozenset(
            (value / factor).normalize()
            for value in self.scaled
            for factor in _FACTORS.get(self.dimension, ())
        )

    def _common(self) -> bool:
        if self.dimension == "time":
            return self.readings <= {Decimal(t) for t in COMMON_TIMES}
        return self.dimension == "%" and self.readings == {Decimal(100)}

    def _rounded(self, other: Number) -> bool:
        if self.text.isdigit() or len(self.readings) > 1:
            return False
        (exact,) = self.readings
        whole = exact.to_integral_value(rounding="ROUND_FLOOR")
        return exact != whole and exact > 10 and bool({whole, whole + 1} & other.readings)


def numbers(text: str) -> Iterator[Number]:
    """The numbers in folded text whose number words are digits; "3." before a line is none."""
    text = _ENUMERATOR.sub(lambda m: " " * len(m[0]), text)
    text = _MONEY.sub(lambda m: f"{m[1]}.{m[2]:0>2} dollars", text)
    for found in _NUMBER.finditer(text):
        start = found.start("a") if found["a"] else found.start("b")
        shape = _SHAPE.match(text, start)
        if shape is None or len(shape[0]) > LONGEST:
            continue
        yield from _numbers_at(text, shape, _CURRENCIES.get(found["money"] or "", ""))
        # A list ("100 200") matches as one run: its other members are read too.
        rest = shape.end()
        while more := re.compile(r"[ ,.']+(?=\d)").match(text, rest, found.end()):
            shape = _SHAPE.match(text, more.end())
            if shape is None or len(shape[0]) > LONGEST:
                break
            yield from _numbers_at(text, shape, "")
            rest = shape.end()


def _numbers_at(text: str, shape: re.Match[str], currency: str) -> Iterator[Number]:
    readings, end, dimension = _readings(shape[0]), shape.end(), currency
    factors: tuple[str, ...] = ("1",)
    for _ in range(2):
        after = _AFTER.match(text, end)
        if after is None:
            break
        word = after["word"]
        if word in _MULTIPLES and (word != "k" or after[0] == "k"):
            readings = frozenset(r.scaleb(_MULTIPLES[word]) for r in readings)
        elif word in UNITS and not dimension:
            dimension, factors = UNITS[word]
        else:
            if after[0] == word and word not in {"st", "nd", "rd", "th"}:
                return  # "7x9": a piece of something else
            break
        end = after.end()
    scaled = frozenset(r * Decimal(f) for r in readings for f in factors)
    yield Number(readings, dimension, scaled, text[shape.start() : end], (shape.start(), end))


def _readings(written: str) -> frozenset[Decimal]:
    bare = written.replace(" ", "").replace("'", "")
    dot, comma = bare.rfind("."), bare.rfind(",")
    texts = set()
    if dot >= 0 and comma >= 0:
        decimal, grouping = (".", ",") if dot > comma else (",", ".")
        texts.add(bare.replace(grouping, "").replace(decimal, "."))
    elif dot < 0 and comma < 0:
        texts.add(bare)
    else:
        sign = "." if dot >= 0 else ","
        grouped = re.fullmatch(rf"\d{{1,3}}(?:{re.escape(sign)}\d{{3}})+", bare)
        if grouped:
            texts.add(bare.replace(sign, ""))
        if bare.count(sign) == 1:
            texts.add(bare.replace(sign, "."))
    return frozenset(Decimal(t).normalize() for t in texts)
