"""Wording: a long run of words taken from a rubric, also re-inflected, reordered or patched.

Two measures, both on one clause of a source at a time:

- Content. Windows of `n + 1` content stems in a row (`n` for a shorter clause). A text takes its
  wording from there when `n` different stems of one window stand within `n + 3` of the text's
  content stems in a row, in whatever order. It is forgiven when some message or tool holds all but
  one of those stems within as short a stretch: then it is wording that the policy has before it.
- Quotation. `n + 3` words of any sort in a row, at least two of them content; or three quarters of
  twelve words, in order, at least three of them content ("they will consider the *problem solved*
  when …"). Forgiven when the same stands in a message or tool.

Said in other words altogether, a rubric passes: that is for a Verifier who understands it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from attrs import field, frozen

from rti_veto.document import WORD, Document, Field, Known
from rti_veto.words import content_stems

SLACK = 3
PATCHED = 12
"""Words of a quotation in which one in four may be another."""
_CLAUSE = re.compile(r"(?<=[.!?;。！？；])\s+|[。！？；]|\n+")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@frozen
class Wording:
    """One window of a source: at most n + 1 stems, of which `needed` must come together."""

    stems: tuple[str, ...]
    needed: int
    name: str = field(init=False, default="wording")

    @property
    def value(self) -> str:
        """The stems, for people."""
        return " ".join(self.stems)

    def find(self, at: Field) -> Iterator[str]:
        """The stems of this window that stand close together there."""
        if not at.joined and len(at.document.stems) >= self.needed:
            best = _closest(at.document.places, self.stems, self.needed + SLACK)
            if len(best) >= self.needed:
                yield " ".join(best)

    def known(self, found: str, known: Known) -> bool:
        """Whether all but one of these stems stand close together in something seen before."""
        stems = tuple(found.split())
        reach = self.needed + SLACK
        return known.any(lambda d: len(_closest(d.places, stems, reach)) >= len(stems) - 1)


@frozen
class Quote:
    """Words of a source in a row, of which `needed` must come again, in their order."""

    words: tuple[str, ...]
    needed: int
    name: str = field(init=False, default="wording")

    @property
    def value(self) -> str:
        """The words."""
        return " ".join(self.words)

    def find(self, at: Field) -> Iterator[str]:
        """The words of it that stand there in this order."""
        if not at.joined and len(at.document.folded_tokens) >= self.needed:
            yield from filter(None, [self._in(at.document, self.needed, content=3)])

    def known(self, found: str, known: Known) -> bool:
        """Whether they stood in anything seen before (all but one, where not all are needed)."""
        if self.needed == len(self.words):
            return known.phrase(self.words)
        return known.any(lambda d: self._in(d, self.needed - 1, content=0))

    def _in(self, document: Document, needed: int, content: int) -> str:
        if needed == len(self.words):
            return self.value if f" {self.value} " in document.line else ""
        if sum(word in document.words for word in self.words) < needed:
            return ""
        words, mine = document.folded_tokens, set(self.words)
        reach = len(self.words) + SLACK
        before = [0, *accumulate(word in mine for word in words)]
        for start, word in enumerate(words):
            near = before[min(start + reach, len(words))] - before[start]
            if word not in mine or near < needed:
                continue
            common = _common(self.words, words[start : start + reach])
            if len(common) >= needed and len(content_stems(" ".join(common))) >= content:
                return " ".join(common)
        return ""


def wordings(text: str, n: int) -> Iterator[Wording | Quote]:
    """The windows and quotes of folded text; short clauses have none."""
    for clause in _CLAUSE.split(text):
        words = tuple(w.removesuffix("'s") for w in WORD.findall(clause))
        for size, needed in ((n + SLACK, n + SLACK), (PATCHED, PATCHED * 3 // 4)):
            for start in range(len(words) - size + 1):
                quote = words[start : start + size]
                if len(content_stems(" ".join(quote))) > 1:
                    yield Quote(quote, needed)
        stems = content_stems(clause)
        # A Chinese word has about two characters.
        needed = 2 * n if sum(map(bool, map(_HAN.match, stems))) * 2 > len(stems) else n
        if len(set(stems)) < needed:
            continue
        size = needed + 1
        for start in range(max(1, len(stems) - size + 1)):
            window = tuple(dict.fromkeys(stems[start : start + size]))
            if len(window) >= needed:
                yield Wording(window, needed)


def _common(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """A longest common subsequence."""
    rows = [[0] * (len(b) + 1)]
    for x in a:
        row = [0]
        for j, y in enumerate(b):
            row.append(rows[-1][j] + 1 if x == y else max(row[-1], rows[-1][j + 1]))
        rows.append(row)
    found: list[str] = []
    i, j = len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            found.append(a[i - 1])
            i, j = i - 1, j - 1
        elif rows[i - 1][j] >= rows[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found[::-1]


def _closest(
    places: Mapping[str, tuple[int, ...]], stems: tuple[str, ...], reach: int
) -> tuple[str, ...]:
    """The most of `stems` that stand within `reach` places of each other."""
    present = [(place, stem) for stem in stems for place in places.get(stem, ())]
    if len({stem for _, stem in present}) < 2:
        return ()
    present.sort()
    starts = [place for place, _ in present]
    best: tuple[str, ...] = ()
    for index, (place, _) in enumerate(present):
        stop = bisect_left(starts, place + reach)
        near = {stem for _, stem in present[index:stop]}
        if len(near) > len(best):
            best = tuple(stem for stem in stems if stem in near)
    return best
