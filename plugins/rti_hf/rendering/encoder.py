"""Text → token ids in which only the template itself can write special tokens."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from attrs import frozen

from rti import Ids


@frozen
class Markup:
    """Text that the template writes: what looks like an added token in it is that token."""

    text: str


Piece = str | Markup
"""Text of people, tools and models (plain), or of the template."""


class Encoder:
    """Encodes pieces as one text, so that tokens may span them as they do in a chat template.

    An added token (`<|im_end|>`, `<tool_call>`, …) appears in the ids only where it stands wholly
    inside one `Markup`. Anywhere else the text is cut after its first letter and both halves are
    encoded apart: the same text, without the token. (`split_special_tokens` would not do: it
    leaves alone the added tokens that are not flagged special, as Qwen's `<tool_call>` is not.)
    """

    def __init__(self, tokenizer: Any) -> None:
        added = tokenizer.get_added_vocab()
        # Runs of blanks, which some vocabularies add too, are text like any other.
        self.added: dict[str, int] = {t: i for t, i in added.items() if len(t.strip()) > 1}
        longest_first = sorted(self.added, key=len, reverse=True)
        self._token = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._tokenizer = tokenizer
        # Every prompt repeats the system text and the messages before it.
        self._cached = lru_cache(maxsize=4096)(self._encode)

    def __call__(self, *pieces: Piece) -> Ids:
        """Token ids of the pieces, read as one text."""
        return self._cached(pieces)

    def _encode(self, pieces: tuple[Piece, ...]) -> Ids:
        text = ""
        written: list[tuple[int, int]] = []
        for piece in pieces:
            start = len(text)
            text += piece.text if isinstance(piece, Markup) else piece
            if isinstance(piece, Markup):
                written.append((start, len(text)))
        ids: list[int] = []
        start = at = 0
        while found := self._token.search(text, at):
            first, last = found.span()
            if any(a <= first and last <= b for a, b in written):
                ids += (*self._plain(text[start:first]), self.added[found[0]])
                start = at = last
            else:
                ids += self._plain(text[start : first + 1])
                start = at = first + 1
        return (*ids, *self._plain(text[start:]))

    def _plain(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = self._tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        )
        return ids
