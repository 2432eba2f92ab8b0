"""Words: which are ordinary language, which carry content, and what is left without an ending."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources

STOP_WORDS = frozenset(
    """a about above after again all also although am an and any are as at be because been before
    being below between both but by can could did do does doing done down during each either else
    ever every few for from further had has have having he her here hers him his how however i if
    in into is it its itself just let like ll made make may me might more most much must my neither
    no nor not now of off on once one only or other our out over own per please quite rather re
    really s same shall she should since so some still such t than that the their them then there
    these they this those though through to too until up upon us ve very was we well were what when
    where whether which while who whom whose why will with within without would yes yet you your
    yours d m""".split()
)
_ENDINGS = (
    ("ations", 4), ("ation", 4), ("ings", 3), ("ing", 3), ("edly", 3), ("ies", 2), ("ied", 2),
    ("ions", 4), ("ion", 4), ("ers", 4), ("ed", 3), ("er", 4), ("es", 3), ("ly", 4), ("s", 3),
    ("e", 3), ("y", 3),
)  # fmt: skip
"""Endings, and how many letters must be left in front of each."""
_WORD = re.compile(r"[^\W_]+")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@cache
def ordinary_words() -> frozenset[str]:
    """Words of everyday English: what documentation of many projects writes in lower case."""
    text = resources.files("rti_veto").joinpath("ordinary.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


@lru_cache(maxsize=65536)
def ordinary(word: str) -> bool:
    """Whether a folded word, or what it is inflected from, belongs to ordinary language."""
    known = ordinary_words()
    return word in known or word in STOP_WORDS or any(base in known for base in _bases(word))


def _bases(word: str) -> tuple[str, ...]:
    bases = []
    for ending in ("s", "es", "ed", "d", "ing", "ly", "er"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            base = word[: -len(ending)]
            bases += [base, base + "e"]
            if ending in {"ed", "ing", "er"} and len(base) > 3 and base[-1] == base[-2]:
                bases.append(base[:-1])
    if word.endswith(("ies", "ied")):
        bases.append(word[:-3] + "y")
    return tuple(bases)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A light stem, equal for `resume`, `resumes`, `resumed`, `resuming`; not a linguist's."""
    for ending, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            if (ending == "s" and word.endswith(("ss", "us", "is"))) or word.endswith("eed"):
                break
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] in "ey" else word


def content_stems(folded: str) -> tuple[str, ...]:
    """Stems of the content words, in order. A Chinese or Japanese character is a word."""
    stems: list[str] = []
    for word in _WORD.findall(folded):
        if word in STOP_WORDS:
            continue
        if _HAN.search(word):
            stems += _HAN.findall(word)
        elif len(word) > 1 or word.isdigit():
            stems.append(stem(word))
    return tuple(stems)
