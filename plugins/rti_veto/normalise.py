"""Characters: many ways to write one thing, brought down to one.

Both functions map character by character to a fixpoint, so they are idempotent, never raise, and
take the same text to the same text wherever it stands.
"""

from __future__ import annotations

import unicodedata

_LOOK_ALIKES = dict(
    zip(
        "АВЕКМНОРСТУХІЈЅҺԀԚԜЗ" "авекмнорстухіјѕһԁԛԝ" "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" "αβεζηικμνορτυχ",
        "ABEKMHOPCTYXIJSHDQW3" "abekmhopctyxijshdqw" "ABEZHIKMNOPTYX" "abezhikmnoptyx",
        strict=True,
    )
)  # fmt: skip
_LETTERS = {"ı": "i", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ð": "d",
            "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "Th"}  # fmt: skip
_SIGNS = {"−": "-", "⁃": "-", "‘": "'", "’": "'", "‛": "'", "`": "'", "´": "'", "ʼ": "'",
          "ʹ": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‚": ",", "٫": ".",
          "٬": ",", "⁄": "/", "∕": "/", "∶": ":"}  # fmt: skip
_BLANK = {"ᅟ", "ᅠ", "ㅤ", "⠀"}
_GONE = {"Cf", "Mn", "Me", "Cs"}


def clean(text: str) -> str:
    """Compatibility forms, accents, look-alikes, dashes, quotes, spaces, digits; case stays.

    Zero-width characters, combining marks and lone surrogates vanish.
    """
    return text.translate(_clean)


def fold(text: str) -> str:
    """`clean`, without case."""
    return text.translate(_fold)


class _Table(dict[int, str]):
    """Fills itself with what is looked up: texts use few of Unicode's characters."""

    def __init__(self, folds: bool) -> None:
        super().__init__()
        self.folds = folds

    def __missing__(self, code: int) -> str:
        value, before = chr(code), ""
        while value != before:
            before, value = value, "".join(self._once(c) for c in value)
        self[code] = value
        return value

    def _once(self, char: str) -> str:
        if char.isascii():
            plain = char if char == "\n" or char.isprintable() else " "
        elif char in _BLANK:
            plain = ""
        elif "가" <= char <= "힣":
            plain = char  # a decomposed syllable would be three letters to everything below
        else:
            parts = unicodedata.normalize("NFKD", char)
            plain = "".join(_plain(c) for c in parts)
        return plain.casefold() if self.folds else plain


def _plain(char: str) -> str:
    category = unicodedata.category(char)
    if category in _GONE:
        return ""
    for table in (_LOOK_ALIKES, _LETTERS, _SIGNS):
        if char in table:
            return table[char]
    digit = unicodedata.digit(char, None)
    if digit is not None:
        return str(digit)
    if category == "Pd":
        return "-"
    if category in {"Zl", "Zp"}:
        return "\n"
    return " " if category in {"Zs", "Cc"} else char


_clean, _fold = _Table(folds=False), _Table(folds=True)
