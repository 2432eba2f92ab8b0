"""Looking names up: which places share words with a text.

Chinese is cut into words by the words that names are made of, the longest first, as search engines
do with a dictionary; a character that is in none of them is a word by itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

NEARLY = 0.6
"""Share of the best hit's likeness from which on a place is listed."""
LONGEST_WORD = 4

_RUN = re.compile(r"([\u3400-\u9fff]+)|([^\W_]+(?:'[^\W_]+)?)")


@frozen(eq=False)
class Index:
    """Positions of names by the words in them."""

    postings: Mapping[str, Sequence[int]] = field(repr=False)

    @classmethod
    def over(cls, names: Sequence[Iterable[str]]) -> Index:
        """The index of names, each given as its words, in whatever languages."""
        postings: dict[str, list[int]] = defaultdict(list)
        for position, words in enumerate(names):
            for word in dict.fromkeys(_plain(w) for text in words for w in text.split()):
                postings[word].append(position)
        return cls(dict(postings))

    def words(self, text: str) -> Iterator[str]:
        """The words of a text."""
        for han, other in _RUN.findall(_plain(text)):
            if other:
                yield other
            start = 0
            while start < len(han):
                stop = min(len(han), start + LONGEST_WORD)
                while stop > start + 1 and han[start:stop] not in self.postings:
                    stop -= 1
                yield han[start:stop]
                start = stop

    def alike(self, text: str) -> dict[int, float]:
        """Positions of the names that are nearly as alike as the best, with how much they are."""
        words = set(self.words(text))
        shared = Counter(position for w in words for position in self.postings.get(w, ()))
        best = max(shared.values(), default=0)
        return {p: n / len(words) for p, n in shared.items() if n >= NEARLY * best}


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
