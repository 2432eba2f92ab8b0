"""What a final answer says: distances, durations, and that a place was not found.

Read by rule, in Chinese and in English, in digits and in words. A wrong number beside the right one
makes an answer wrong, so that it does not pay to guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from attrs import frozen

from rti_navigation.names import fold

MOST_CHARACTERS = 4000
"""An answer is read as far as this."""

MINUTE = 60.0

_LENGTHS = {
    1000.0: "公里|km|kms|kilomet(?:er|re)s?",
    500.0: "里路|华里",
    1609.344: "英里|miles?|mi",
    1.0: "米|m|met(?:er|re)s?",
}
_DURATIONS = {
    3600.0: "个?小时|个?钟头|h|hrs?|hours?",
    MINUTE: "分钟|分|min|mins|minutes?",
    1.0: "秒钟|秒|s|secs?|seconds?",
}
_NUMBER = r"(?<![a-z0-9.])(\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
_NO_SPEED = r"(?![a-z]|\s*/|\s+per\b|每)"
_SMALLER = re.compile(r"[\s,，、]*(?:and|又|零)?\s*")


@frozen
class Quantity:
    """A stated amount, and how much its last digit is worth, in metres or seconds."""

    value: float
    unit: float

    def states(self, true: float) -> bool:
        """Whether it is `true`, rounded, or off by one per cent. Minutes may be rounded up."""
        slack = min(max(self.unit / 2, 0.01 * true), 0.05 * true)
        if self.unit == MINUTE:
            slack = max(MINUTE / 2, min(MINUTE, 0.05 * true))
        return abs(self.value - true) <= slack + 1e-9


def states(text: str, kind: str, total: int, legs: Sequence[int]) -> bool:
    """Whether a text states the total, and no amount that is neither it nor a leg's."""
    found = list(quantities(text, kind))
    return any(q.states(total) for q in found) and all(
        any(q.states(true) for true in (total, *legs)) for q in found
    )


def quantities(text: str, kind: str) -> Iterator[Quantity]:
    """The distances ("distance") or durations ("duration") in a text."""
    plain = _digits(unicodedata.normalize("NFKC", text[:MOST_CHARACTERS]).casefold())
    units = _LENGTHS if kind == "distance" else _DURATIONS
    found: list[tuple[int, int, float, float, float]] = []
    for factor, words in units.items():
        for match in re.finditer(rf"{_NUMBER}[\s-]*(?:{words}){_NO_SPEED}", plain):
            digits = match[1].replace(",", "")
            last = 10.0 ** -len(digits.partition(".")[2])
            found.append((*match.span(), float(digits) * factor, last * factor, factor))
    found.sort()
    while found:
        start = found.pop(0)
        value, last, factor, end = start[2], start[3], start[4], start[1]
        # "1 h 5 min" is one duration.
        while found and _goes_on(plain[end : found[0][0]], factor, found[0]):
            _, end, more, last, factor = found.pop(0)
            value += more
        yield Quantity(value, last)


def _goes_on(gap: str, factor: float, item: tuple[int, int, float, float, float]) -> bool:
    return _SMALLER.fullmatch(gap) is not None and item[4] < factor and item[2] < factor


_ABSENT = re.compile(
    r"no such|(?:not|n't) (?:be )?(?:found|find|locate|exist|appear)"
    r"|cannot (?:be )?(?:found|find|locate)|unable to (?:find|locate)"
    r"|not able to (?:find|locate)|\bno (?:place|result|match|poi|location)"
    r"|[找查搜]不到|搜索不到|查询不到|没有?能?(?:[找搜查]到|搜索到|查询到)|未能?(?:[找搜查]到|搜索到)"
    r"|不存在|没有(?:叫|名为|名叫|正好叫|这个|这家|这座|该)|没有.{0,20}这个地[方点]|查无|无此"
)
_SENTENCE = re.compile(r"[。！？!?\n]|\.(?=\s|$)")
_CLAUSE = re.compile(r"[;；，,]|\bbut\b|\bwhile\b|\bwhereas\b|但是?|而")


def says_missing(text: str, missing: str, others: Sequence[str]) -> bool:
    """Whether a text says that `missing` was not found, and says so of no place of `others`."""
    plain = unicodedata.normalize("NFKC", text[:MOST_CHARACTERS]).casefold().replace("’", "'")
    said: set[str] = set()
    for sentence in _SENTENCE.split(plain):
        about: set[str] = set()
        for clause in _CLAUSE.split(sentence):
            folded = fold(clause)
            # "As for X, it was not found": a clause without a name goes on about the last one.
            about = {n for n in (missing, *others) if fold(n) in folded} or about
            said |= about if _ABSENT.search(clause) else {n for n in about if _none(n, clause)}
    return said == {missing}


def _none(name: str, clause: str) -> bool:
    """Whether a clause says that there is "no NAME"."""
    plain = re.escape(unicodedata.normalize("NFKC", name).casefold())
    return re.search(rf"(?:没有|并无|\bno)\s*[\"'“”‘’「『《]*{plain}", clause) is not None


_HAN = dict(zip("零〇一二两三四五六七八九", (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True))
_HAN_NUMBER = re.compile(
    r"(?<![\d.])([零〇一二两三四五六七八九十百千万]{1,12}(?:点[零〇一二三四五六七八九]{1,4})?)"
    r"(?=\s*(?:个半?(?:小时|钟头)|公里|英里|里路|华里|米|小时|钟头|分|秒))"
)
_AND_A_HALF = re.compile(r"([零〇一二两三四五六七八九十百]+|\d+)\s*个半(?:小时|钟头)")
_CLOSE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(h|hrs?|hours?|min|mins)(?=\d)")
"""1h5min."""
_ENGLISH = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()
    )
} | {
    word: 10 * number
    for number, word in enumerate(
        "twenty thirty forty fifty sixty seventy eighty ninety".split(), 2
    )
}
_WORDS = "|".join(sorted(_ENGLISH, key=len, reverse=True))
_ENGLISH_NUMBER = re.compile(
    rf"\b((?:{_WORDS})(?:(?:[\s-]+(?:and[\s-]+)?)(?:{_WORDS}|hundred|thousand))*)"
    rf"(?:\s+point((?:\s+(?:{_WORDS}))+))?\b"
)


def _digits(text: str) -> str:
    """The text with its number words as digits."""
    text = text.replace("千米", "公里")
    text = _AND_A_HALF.sub(lambda m: f" {_chinese(m[1])}.5小时", text)
    text = re.sub(r"半个?(?:小时|钟头)|\bhalf an hour\b", " 30min ", text)
    text = re.sub(r"([一三])刻钟", lambda m: f" {15 * _HAN[m[1]]}分钟", text)
    text = re.sub(r"\b(?:an|one) hour and a half\b", " 90min ", text)
    text = re.sub(r"\ban hour\b", "1 hour", text)
    text = _HAN_NUMBER.sub(lambda m: f" {_chinese(m[1])}", text)
    text = _ENGLISH_NUMBER.sub(lambda m: _english(m[1], m[2] or ""), text)
    return _CLOSE.sub(r"\1\2 ", text)


def _chinese(word: str) -> str:
    if word.isdigit():
        return word
    whole, _, rest = word.partition("点")
    total = section = digit = 0
    for character in whole:
        if character in _HAN:
            digit = _HAN[character]
        elif character == "万":
            total, section, digit = (total + section + digit) * 10_000, 0, 0
        else:
            section += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[character]
            digit = 0
    number = str(total + section + digit)
    return number + ("." + "".join(str(_HAN[c]) for c in rest) if rest else "")


def _english(words: str, decimals: str) -> str:
    total = section = 0
    for word in re.split(r"[\s-]+", words):
        if word == "hundred":
            section *= 100
        elif word == "thousand":
            total, section = total + section * 1000, 0
        elif word != "and":
            section += _ENGLISH[word]
    rest = "".join(str(_ENGLISH[word]) for word in decimals.split())
    return f"{total + section}.{rest}" if rest else str(total + section)
