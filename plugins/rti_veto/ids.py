"""Ids: customer numbers, telephone numbers, e-mail addresses, names of functions.

An id is compared by its letters and digits alone, so that `C1001`, `c-1001`, `C 1001`, full-width
and spelled-out forms are one. Where that would be too generous (the article in "a 1 GB plan",
`k1` inside `k12`) the rules below are stricter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from attrs import field, frozen

from rti_veto.dates import dates
from rti_veto.document import Document, Field, Known, skeleton
from rti_veto.normalise import fold
from rti_veto.numbers import UNITS
from rti_veto.words import STOP_WORDS

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(r"(?<![\w.])(?:\+\d{1,3}[-. ]?)?\(?\d{2,4}\)?(?:[-. ]\(?\d{2,4}\)?){1,4}(?!\w)")
_TOKEN = re.compile(r"[^\W_]+(?:[-_.+~][^\W_]+)*")
_UNITS = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_MEASURE = re.compile(rf"\d+(?:\.\d+)?(?:{_UNITS}|st|nd|rd|th|am|pm|k|g|x|p|s)")
_ORDINARY = {"mp3", "mp4", "utf8", "utf-8", "2fa", "ipv4", "ipv6", "a4", "b2b", "covid-19", "h264"}
_DECIMAL = re.compile(r"\d+(?:[.,]\d+)*")
_GAP = r"(?:[-_.:/#*'\"()\[\]{} \t]{0,3}|,(?! )|\n)"
_DOTS = re.compile(r"\b(?:dot|point|underscore|dash|hyphen|at)\b|[\W_]+")
_UNFOUNDED = re.compile(
    r"[a-z]{0,5}[-_ ]?\d{3,}[a-z0-9-]*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


@frozen
class Id:
    """An identifier. `kind`: letters and digits; digits alone; words joined by signs; e-mail."""

    value: str
    kind: Literal["mixed", "digits", "words", "email"]
    compact: str
    name: str = field(init=False, default="id")

    def find(self, at: Field) -> Iterator[str]:
        """What of this id stands there: all of it, or its tail of digits."""
        document = at.document
        if self.kind == "words":
            if self.compact in document.letters and self._joined.search(document.folded):
                yield self.value
        elif self.kind == "email":
            yield from filter(None, [self._email(document)])
        elif self.kind == "digits" and len(self.compact) >= 7:
            yield from (run for run in document.digit_runs if self._dialled(run))
        else:
            whole = [
                _whole(document.spoken, match)
                for match in self._pattern.finditer(
                    document.spoken if self.compact in document.compact else ""
                )
                if self._plausible(match)
            ]
            yield from whole
            alike = document.skeletons.get(skeleton(self.compact))
            if alike and len(self.compact) >= 5 and self.kind == "mixed":
                yield alike
            tail = "" if whole else self._tail
            if tail and tail in document.compact and _alone(tail, document.spoken):
                yield tail

    def known(self, found: str, known: Known) -> bool:
        """Whether what was found could be seen before, by itself or as the same tail."""
        if self.kind == "words":
            words = tuple(re.split(r"[\W_]+", self.value))
            return known.phrase(words) or known.any(lambda d: self._joined.search(d.folded))
        if self.kind == "email":
            return known.any(self._email)
        if self.kind == "digits" and len(self.compact) >= 7:
            return known.any(
                lambda d: any(
                    _part(found, run) or (len(run) >= 7 and found.endswith(run))
                    for run in d.digit_runs
                )
            )
        if found == self._tail:
            return known.any(lambda d: _ends(found, d.spoken))
        return known.any(self._seen) or (found != self.value and known.word(found))

    def _dialled(self, run: str) -> bool:
        """The number, also behind a country's prefix; its last four digits; its first six."""
        return _part(run, self.compact) or (
            len(run) <= len(self.compact) + 5 and run.endswith(self.compact)
        )

    def _seen(self, document: Document) -> bool:
        if self.compact not in document.compact:
            return False
        return any(
            self._plausible(m) and _whole(document.spoken, m) == _bare(m[0])
            for m in self._pattern.finditer(document.spoken)
        )

    def _email(self, document: Document) -> str:
        spelled = _DOTS.sub("", self.value)
        return self.value if spelled in _DOTS.sub("", document.folded) else ""

    @cached_property
    def _joined(self) -> re.Pattern[str]:
        parts = re.split(r"[\W_]+", self.value)
        return re.compile(rf"(?<![^\W_]){'[-_.]?'.join(map(re.escape, parts))}(?![^\W_])")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        body = _GAP.join(map(re.escape, self.compact))
        long = len(self.compact) >= 5
        first, last = self.compact[0], self.compact[-1]
        before = r"(?<![\d.,])" if self.kind == "digits" else r"(?<!\d)"
        if not first.isdigit():
            before = "" if long else r"(?<![^\W_])"
        after = r"(?!\d)" if last.isdigit() else "" if long else r"(?![^\W_])"
        return re.compile(before + body + after)

    def _plausible(self, match: re.Match[str]) -> bool:
        """Not an article or preposition and the number behind it, nor the end of "id 1003"."""
        before = match.string[match.start() - 1 : match.start()]
        if before.isalpha() and match[0][0].isalpha() and not match[0].isalnum():
            return False
        words = match[0].split()
        return len(words) == 1 or words[0] not in STOP_WORDS or len(self.compact) > 4

    @property
    def _tail(self) -> str:
        """The digits by which people call an id: all three or more of `C1001`'s."""
        found = re.fullmatch(r"[a-z]+(\d{3,})", self.compact)
        return found[1] if found else ""


def ids(text: str, whole: bool = False) -> Iterator[Id]:
    """The ids in cleaned text without its dates. `whole`: the text is a value by itself."""
    spans: list[tuple[int, int]] = []
    for found in _EMAIL.finditer(text):
        spans.append(found.span())
        value = fold(found[0])
        yield Id(value, "email", _bare(value))
        local = value.partition("@")[0]
        if len(_bare(local)) >= 5 and re.search(r"[\W_]", local):
            yield Id(local, "words", _bare(local))
    for found in _PHONE.finditer(text):
        digits = re.sub(r"\D", "", found[0])
        signs = re.search(r"[-.(+]", found[0])
        if len(digits) >= 7 and signs and not _within(found.span(), spans):
            spans.append(found.span())
            yield Id(found[0], "digits", digits)
    for found in _TOKEN.finditer(text):
        if not _within(found.span(), spans):
            made = _token(fold(found[0]), whole)
            if made is not None:
                yield made


def _token(token: str, whole: bool) -> Id | None:
    bare = _bare(token)
    if not any(c.isdigit() for c in bare):
        joined = "_" in token and re.fullmatch(r"[^\W\d]+", token)
        return Id(token, "words", bare) if joined else None
    if token in _ORDINARY or _MEASURE.fullmatch(token):
        return None
    if _DECIMAL.fullmatch(token):
        return Id(token, "digits", bare) if bare == token and len(bare) >= 5 else None
    if bare.isdigit():
        return Id(token, "digits", bare) if len(bare) >= 5 else None
    if not whole and re.fullmatch(r"\d{1,2}[a-z]+|[a-z]+-\d", token) and "-" not in token[:-2]:
        # "3g" and "top-5" are words of a sort; as a value by itself either would be an id.
        return Id(token, "mixed", bare) if len(bare) > 4 else None
    return Id(token, "mixed", bare)


def unfounded(at: Field, known: Known) -> str:
    """An argument that is nothing but an id, and one that no one has named: made up, or leaked."""
    text = at.document.folded.strip()
    if not at.value or not _UNFOUNDED.fullmatch(text):
        return ""
    if _MEASURE.fullmatch(text) or next(iter(dates(text)), None) or text.count(" "):
        return ""
    bare = _bare(text)
    if bare.isdigit() and len(bare) < 7:
        return ""  # an amount, a sum: what is reckoned stands nowhere
    if bare.isdigit():
        # With or without a country's prefix, cut short or at length: digits that stood there.
        seen = known.any(lambda d: bare in d.compact or bare[-10:] in d.compact)
        return "" if seen or known.any(lambda d: _written(bare, d)) else text
    made = Id(text, "mixed", bare)
    return "" if made.known(text, known) or known.word(text) else text


def _written(digits: str, document: Document) -> bool:
    return any(str(r) == digits for n in document.numbers for r in n.readings)


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


def _within(span: tuple[int, int], spans: list[tuple[int, int]]) -> bool:
    return any(span[0] < stop and start < span[1] for start, stop in spans)


def _whole(text: str, match: re.Match[str]) -> str:
    """A match with the letters and digits that touch it: `idC1001` is another word than `C1001`."""
    start, stop = match.span()
    while start > 0 and text[start - 1].isalpha() and text[start].isalpha():
        start -= 1
    while stop < len(text) and text[stop].isalnum():
        stop += 1
    return _bare(text[start:stop])


def _part(run: str, digits: str) -> bool:
    """Whether a run is the end of a telephone number, or much of its beginning."""
    if run == digits:
        return True
    return (len(run) >= 4 and digits.endswith(run)) or (len(run) >= 6 and digits.startswith(run))


def _alone(tail: str, text: str) -> bool:
    return re.search(rf"(?<![\d.,$€£]){tail}(?!\d|[.,]\d|[a-z%])", text) is not None


def _ends(tail: str, text: str) -> bool:
    return re.search(rf"(?<!\d){tail}(?!\d)", text) is not None or tail in re.findall(
        r"\d*(\d{4})(?!\d)", text
    )
