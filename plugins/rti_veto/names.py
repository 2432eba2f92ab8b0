"""Names of people, places and products: whole, reordered, shortened, misspelt by a letter.

Which words are names is told by capitals and by what they are not: words of ordinary language.
A name of ordinary words only ("Premium Plan") counts as a whole, and where it is written like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from attrs import field, frozen

from rti_veto.document import Field, Known, skeleton
from rti_veto.normalise import fold
from rti_veto.spelling import distance, near, nicknames
from rti_veto.words import STOP_WORDS, ordinary

LONGEST = 5
"""More capitalised words in a row than this are a heading, not a name."""

SECRET = 3
"""A value of more ordinary words than this ("I cannot fix the issue.") says nothing by itself."""

_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*|\d+")
_PARTICLES = {"de", "del", "della", "der", "den", "di", "da", "dos", "du", "van", "von", "bin",
              "al", "la", "le", "el", "ibn", "st", "y"}  # fmt: skip
_START = re.compile(r"(?:^|[.!?:;\n{\[(|*=/])[\s\"'({\[*-]*\Z")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2,}")


@frozen
class Name:
    """A name by its folded words. `plain`: each of them is a word of ordinary language."""

    words: tuple[str, ...]
    plain: bool
    name: str = field(init=False, default="name")

    @property
    def value(self) -> str:
        """The name as it is compared."""
        return " ".join(self.words)

    def find(self, at: Field) -> Iterator[str]:
        """The parts of this name that stand there."""
        if not self.plain:
            yield from (word for word in self._telling() if word in at.document.words)
            yield from (token for token in at.document.words if self._close(token))
        if not at.joined:
            yield from filter(None, [self._whole(at), self._initialled(at), self._short(at)])

    def known(self, found: str, known: Known) -> bool:
        """Whether all of what was found could be seen before, or the words it stands for."""
        words = tuple(found.split())
        if len(words) > 1 and self.plain:
            return known.phrase(words) or known.phrase(words[::-1])
        if all(known.word(w) for w in words):
            return True
        meant = [
            w
            for w in self.words
            if near(words[0], w) or words[0] in nicknames(w) or len(w) == len(words[0]) == 3
        ]
        if found in self._joined():
            return all(known.word(w) for w in self.words)
        return bool(meant) and all(known.word(w) for w in meant)

    def _telling(self) -> Iterator[str]:
        yield from (w for w in self.words if len(w) > 2 and not ordinary(w))

    def _joined(self) -> set[str]:
        if len(self.words) < 2:
            return set()
        first, last = self.words[0], self.words[-1]
        whole = {"".join(self.words), last + first, first[0] + last, first + last[0]}
        return {w for w in whole if len(w) >= 4 and not ordinary(w)}

    def _close(self, token: str) -> bool:
        if ordinary(token):
            return False
        if any(c.isdigit() for c in token) and any(
            skeleton(token) == skeleton(w) for w in self._telling()
        ):
            return True  # "J0hnson"
        if any(near(token, w) for w in self._telling() if len(w) > 3):
            return True
        joined = self._joined()
        return token in joined or any(len(j) >= 7 and j in token for j in joined)

    def _whole(self, at: Field) -> str:
        """All words in a row, either way round; ordinary ones must be capitalised in prose."""
        if len(self.words) < 2:
            return ""
        folded, written = at.document.folded_tokens, at.document.tokens
        size = len(self.words)
        for start in range(len(folded) - size + 1):
            here = folded[start : start + size]
            if here in (self.words, self.words[::-1]) and (
                at.argument
                or all(w[0].isupper() or w[0].isdigit() for w in written[start : start + size])
            ):
                return " ".join(here)
        return ""

    def _initialled(self, at: Field) -> str:
        """ "J. Smith", "John S.": where the full word is ordinary ("Young"), too."""
        if len(self.words) < 2:
            return ""
        first, last = self.words[0], self.words[-1]
        folded, written = at.document.folded_tokens, at.document.tokens
        for (a, b), (x, y) in zip(pairwise(folded), pairwise(written), strict=True):
            capital = x[0].isupper() and y[0].isupper()
            if not capital:
                continue
            if (a, b) in {(first[0], last), (first, last[0]), (last, first[0])}:
                return a if len(a) > len(b) else b
            # Beside an initial a misspelt short name is no chance ("Lae, M.").
            long, initial = (a, b) if len(a) > len(b) else (b, a)
            short = len(last) == len(long) == 3 and long[0] == last[0] and not ordinary(long)
            if short and initial == first[0] and distance(long, last) == 1:
                return long
        return ""

    def _short(self, at: Field) -> str:
        for word in self.words[:1]:
            for short in nicknames(word):
                if short in at.document.words and any(
                    fold(t) == short and t[0].isupper() for t in at.document.tokens
                ):
                    return short
        return ""


@frozen
class Phrase:
    """A name in a script without capitals, or a secret of a single word: found as it is."""

    value: str
    name: str = field(init=False, default="name")

    def find(self, at: Field) -> Iterator[str]:
        """The phrase, where it stands."""
        if _HAN.search(self.value):
            there = self.value in at.document.folded
        else:
            # A word of ordinary language counts where it is a value by itself.
            alone = " ".join(at.document.folded_tokens) == self.value
            there = at.argument and not at.joined and alone
        if there:
            yield self.value

    def known(self, found: str, known: Known) -> bool:
        """Whether it stood in anything seen before."""
        if _HAN.search(self.value):
            return known.any(lambda d: self.value in d.folded)
        return known.phrase(tuple(self.value.split()))


def names(text: str, whole: bool = False) -> Iterator[Name | Phrase]:
    """The names in cleaned text. `whole`: it is a value by itself ('John Smith', 'aurora')."""
    for run in _runs(text, whole):
        folded = tuple(fold(w) for w in run)
        telling = [w for w in folded if not ordinary(w) and w not in _PARTICLES and not w.isdigit()]
        if telling:
            yield Name(folded, plain=False)
        elif len([w for w in folded if len(w) > 2]) > 1:
            yield Name(folded, plain=True)
    for found in _HAN.findall(text) if whole else ():
        if len(found) <= 20:
            yield Phrase(fold(found))
    words = [fold(w) for w in _WORD.findall(text)]
    lettered = bool(words) and all(word.isalpha() for word in words)
    if whole and lettered and len(words) <= SECRET and not _HAN.search(text):
        yield Phrase(" ".join(words))
        if len(words) == 1 and words[0].isalpha() and len(words[0]) > 3 and not ordinary(words[0]):
            yield Name((words[0],), plain=False)


def _runs(text: str, whole: bool) -> Iterator[list[str]]:
    run: list[str] = []
    end, started = -1, False
    for found in _WORD.finditer(text):
        word = found[0]
        touches = run and re.fullmatch(r"[ ]|\. |, (?=\Z)", text[end : found.start()])
        if run and not touches:
            yield from _kept(run, started, whole)
            run = []
        capital = word[0].isupper() and (len(word) == 1 or not word.isupper() or len(word) > 4)
        more = run and (word.lower() in _PARTICLES or word.isdigit())
        if capital or more:
            if not run:
                started = (
                    _START.search(text[max(0, found.start() - 12) : found.start()]) is not None
                )
            run.append(word)
            end = found.end()
            if text[end : end + 2] == ". " and len(word) > 1:
                yield from _kept(run, started, whole)  # the sentence ends here
                run = []
        elif run:
            yield from _kept(run, started, whole)
            run = []
    if run:
        yield from _kept(run, started, whole)


def _kept(run: list[str], started: bool, whole: bool) -> Iterator[list[str]]:
    while run and (run[-1].lower() in _PARTICLES or run[-1].lower() in STOP_WORDS):
        run = run[:-1]
    while run and run[0].lower() in STOP_WORDS:
        run, started = run[1:], False
    # A sentence starts with a capital: "Purpose" alone is no name, "John Smith" is.
    if started and not whole and len(run) == 1:
        return
    if run and len(run) <= LONGEST and not all(w.isdigit() for w in run):
        yield run
