"""Keys and values of token prefixes, kept across the turns of a step.

The prompt of turn k+1 begins with prompt and response of turn k, and role prompts begin with the
rollout's history: what was computed once is looked up by its longest known prefix.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from attrs import define, field

_BASE, _MASK = 1_000_003, (1 << 64) - 1


def prefix_hashes(ids: Sequence[int]) -> list[int]:
    """Rolling hashes of all prefixes: element i hashes ids[: i + 1]."""
    value, hashes = 1, []
    for token in ids:
        value = (value * _BASE + token + 1) & _MASK
        hashes.append(value)
    return hashes


@define
class _Entry:
    ids: tuple[int, ...]
    block: Any
    """Keys and values, shape (layers, 2, heads, tokens, head_dim)."""
    hashes: tuple[int, ...] = ()


@define
class KVStore:
    """Prefix → keys and values, bounded in bytes; the least recently used goes first."""

    limit_bytes: int
    _entries: OrderedDict[int, _Entry] = field(init=False, factory=OrderedDict)
    _marks: dict[int, tuple[int, int]] = field(init=False, factory=dict)
    """Hash of a prefix → (hash of the entry that holds it, its length)."""
    _bytes: int = field(init=False, default=0)
    hits: int = field(init=False, default=0)
    """Tokens that did not have to be computed again."""

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._entries.clear()
        self._marks.clear()
        self._bytes = 0

    def put(self, ids: tuple[int, ...], marks: Sequence[int], block: Any) -> None:
        """Keep `block`, the keys and values of all of `ids`; `marks` are lengths to look up by."""
        size = block.numel() * block.element_size()
        if size > self.limit_bytes:
            return
        hashes = prefix_hashes(ids)
        key = hashes[-1]
        if key in self._entries:
            return
        marked = tuple(hashes[length - 1] for length in (*marks, len(ids)) if length > 0)
        self._entries[key] = _Entry(ids, block, marked)
        self._bytes += size
        for length in (*marks, len(ids)):
            if length > 0:
                self._marks.setdefault(hashes[length - 1], (key, length))
        while self._bytes > self.limit_bytes:
            _, old = self._entries.popitem(last=False)
            self._bytes -= old.block.numel() * old.block.element_size()
            old_key = prefix_hashes(old.ids)[-1]
            for mark in old.hashes:
                if self._marks.get(mark, (None,))[0] == old_key:
                    del self._marks[mark]

    def longest(self, ids: tuple[int, ...], at_most: int) -> tuple[int, Any]:
        """Longest known prefix of `ids` of at most `at_most` tokens: (its length, its block)."""
        hashes = prefix_hashes(ids[:at_most])
        for i in range(len(hashes) - 1, -1, -1):
            found = self._marks.get(hashes[i])
            if found is None:
                continue
            key, length = found
            entry = self._entries[key]
            if length == i + 1 and entry.ids[:length] == ids[:length]:
                self._entries.move_to_end(key)
                self.hits += length
                return length, entry.block[:, :, :, :length]
        return 0, None
