"""Numbers in words, turned into digits: "one hundred and sixty" → "160", "c ten oh one" → "c 1001".

Works on folded text. Runs of words that are no one number ("five five five", "nineteen ninety")
are read digit by digit or pair by pair, as ids, telephone numbers and years are read aloud.
"""

from __future__ import annotations

import re

_UNITS = {w: i for i, w in enumerate("zero one two three four five six seven eight nine".split())}
_TEENS = {
    w: i
    for i, w in enumerate(
        "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(),
        10,
    )
}
_TENS = {
    w: 10 * i
    for i, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_ORDINALS = {
    w: i
    for i, w in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth".split(),
        1,
    )
} | {"twentieth": 20, "thirtieth": 30}
_SMALL = _UNITS | _TEENS | _TENS | {"oh": 0}

_WORD = "|".join(sorted([*_SMALL, *_SCALES, "hundred"], key=len, reverse=True))
_ANY = re.compile(rf"\b(?:{'|'.join([*_UNITS, *_TEENS, *_TENS])}|an? (?:hundred|thousand))\b")
_RUN = re.compile(rf"\b(?:an? (?=hundred|thousand))?(?:{_WORD})(?:(?:[ -]| and )(?:{_WORD}))*\b")
_NTH = "|".join(_ORDINALS)
_TENS_NTH = re.compile(rf"\b({'|'.join(_TENS)})[ -]({_NTH})\b")
_LONE_NTH = re.compile(rf"\b({_NTH})\b(?! (?:class|time|of all))")
_POINT = re.compile(r"\b(\d+) point (\d+(?: \d)*)\b")


def digits(text: str) -> str:
    """`text` (folded) with its number words as digits, ordinals as "22nd"."""
    if _TENS_NTH.search(text) or _LONE_NTH.search(text):
        text = _TENS_NTH.sub(lambda m: f"{_TENS[m[1]] + _ORDINALS[m[2]]}th", text)
        text = _LONE_NTH.sub(_ordinal, text)
    if not _ANY.search(text):
        return text
    text = _RUN.sub(_run, text)
    return _POINT.sub(lambda m: f"{m[1]}.{m[2].replace(' ', '')}", text)


def _ordinal(match: re.Match[str]) -> str:
    # "30 second" is a span of time; "the second of May" is a day.
    before, after = match.string[: match.start()], match.string[match.end() :]
    second = match[1] == "second"
    if second and not (before.endswith("the ") or after.lstrip().startswith("of ")):
        return match[0]
    return f"{_ORDINALS[match[1]]}th"


def _run(match: re.Match[str]) -> str:
    words = [w for w in re.split(r"[ -]", match[0]) if w not in {"and", "a", "an"}]
    if all(word in _SCALES or word in {"hundred", "oh"} for word in words):
        # "a hundred" is a number; "hundreds", "1.2 thousand" and "oh" are not for us.
        return _written(words) if match[0].startswith("a") else match[0]
    return _written(words)


def _written(words: list[str]) -> str:
    groups: list[int] = []
    total = current = 0
    last = "start"
    for word in words:
        if word == "hundred":
            current, last = max(current, 1) * 100, "hundred"
        elif word in _SCALES:
            total, current, last = total + max(current, 1) * _SCALES[word], 0, "scale"
        else:
            kind = "unit" if word in _UNITS or word == "oh" else "tens" if word in _TENS else "teen"
            joins = last in {"start", "hundred", "scale"} or (
                last == "tens" and kind == "unit" and _SMALL[word] > 0
            )
            if not joins:
                groups.append(total + current)
                total = current = 0
            current, last = current + _SMALL[word], kind
    groups.append(total + current)
    return "".join(map(str, groups))
