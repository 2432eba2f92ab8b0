"""Which looks are shown as transcripts, and how: word diff, weights, texts cut to a length."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote

from attrs import define, field

from rti.report.curves import short
from rti.report.embed import size
from rti.report.log import Look, number
from rti.report.reading import texts
from rti.report.source import Cell

MOST = 2000
"""Most transcripts in a page: its list is to stay quick on a phone."""
HISTORY, TEXT, TOKENS = 12_000, 6_000, 1_500
"""Most characters of a history and of any other text, and most tokens with weights."""
PAIRS = 100_000
"""Most pairs of equal words in a draft and its correction that are compared."""
_CHUNK = 64
_FRAME = 40
"""Bytes of an entry's two numbers (run, history) and its commas."""

Segments = list[list[Any]]
"""[[changed 0 or 1, text], ...]: joined, the whole text."""


@define
class Transcripts:
    """The chosen looks, encoded. Histories are shared: attempts at one turn have the same."""

    histories: list[str] = field(factory=list)
    entries: list[dict[str, Any]] = field(factory=list)
    total: int = 0
    trained: int = 0
    trained_shown: int = 0

    def as_data(self) -> dict[str, Any]:
        """For the page."""
        return {
            "histories": self.histories,
            "entries": self.entries,
            "total": self.total,
            "trained": self.trained,
            "trainedShown": self.trained_shown,
        }


def transcripts(cells: Sequence[Cell], budget: int) -> Transcripts:
    """As many transcripts as fit into `budget` bytes, the same ones every time.

    Looks are taken in turn from each run and outcome, spread evenly over training, so that the
    rare ones (trained on, succeeded) are shown whole where the common ones must be sampled.
    """
    found = Transcripts(
        total=sum(len(c.log.looks) for c in cells if c.log),
        trained=sum(look.trained for c in cells if c.log for look in c.log.looks),
    )
    place: dict[str, int] = {}
    chosen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    ids = Counter[str]()
    order = _order(cells)
    while chunk := list(islice(order, _CHUNK)):
        for cell, look, record in _read(cells, chunk):
            entry = _entry("" if len(cells) == 1 else f"{cells[cell].name}.", look, record)
            history = _cut(str(record.get("history") or ""), HISTORY)
            bytes_ = size(entry) + _FRAME + (0 if history in place else size(history) + 1)
            if bytes_ > budget or len(chosen) == MOST:
                continue
            budget -= bytes_
            ids[entry["id"]] += 1
            if ids[entry["id"]] > 1:
                entry["id"] += f"-{ids[entry['id']]}"
            entry["history"] = place.setdefault(history, len(place))
            entry["run"] = cell
            chosen.append(((cell, look.step, look.task, look.rollout, look.attempt), entry))
            found.trained_shown += look.trained
        if len(chosen) == MOST or budget < 400:
            break
    found.histories = list(place)
    found.entries = [entry for _, entry in sorted(chosen, key=lambda pair: pair[0])]
    return found


def _order(cells: Sequence[Cell]) -> Iterator[tuple[int, Look]]:
    """(index of the run, look): in turn from each stratum, each spread over its length."""
    strata: dict[tuple[int, bool, str], list[Look]] = {}
    for index, cell in enumerate(cells):
        for look in cell.log.looks if cell.log else ():
            strata.setdefault((index, not look.trained, look.stage), []).append(look)
    keys = sorted(strata, key=lambda k: (k[1], k[2] != "succeeded", k[2], k[0]))
    queues = [(key[0], _spread(strata[key])) for key in keys]
    for turn in range(max((len(q) for _, q in queues), default=0)):
        for index, queue in queues:
            if turn < len(queue):
                yield index, queue[turn]


def _spread(looks: Sequence[Look]) -> list[Look]:
    """In the order of reversed bits (van der Corput): every beginning is spread over the whole."""
    bits = max(1, (len(looks) - 1).bit_length())
    order = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits))
    return [looks[i] for i in order if i < len(looks)]


def _read(
    cells: Sequence[Cell], chunk: Sequence[tuple[int, Look]]
) -> Iterator[tuple[int, Look, Mapping[str, Any]]]:
    by_cell: dict[int, list[Look]] = {}
    for index, look in chunk:
        by_cell.setdefault(index, []).append(look)
    records: dict[tuple[int, tuple[int, int]], Mapping[str, Any]] = {}
    for index, looks in by_cell.items():
        log = cells[index].log
        assert log is not None
        for look, record in zip(looks, texts(log.folder, looks), strict=True):
            records[index, look.place] = record
    for index, look in chunk:
        yield index, look, records[index, look.place]


def _entry(run: str, look: Look, record: Mapping[str, Any]) -> dict[str, Any]:
    draft = _cut(str(record.get("draft") or ""), TEXT)
    correction = _cut(str(record.get("correction") or ""), TEXT)
    left, right = word_diff(draft, correction) if correction else ([[0, draft]], [])
    tokens = [str(t) for t in _list(record.get("tokens"))][:TOKENS]
    weights = [short(w) for w in map(number, _list(record.get("weights"))) if w is not None]
    place = f"{run}s{look.step}.{look.task}.r{look.rollout}.a{look.attempt}"
    entry = {
        "id": f"turn-{quote(place, errors='replace')}",
        "step": look.step,
        "task": look.task,
        "family": look.family,
        "rollout": look.rollout,
        "attempt": look.attempt,
        "turn": look.turn,
        "stage": look.stage,
        "reason": _cut(look.reason, TEXT),
        "trained": look.trained,
        "draft": left,
        "correction": right,
        "diagnosis": _cut(str(record.get("diagnosis") or ""), TEXT),
        "verdicts": [_cut(str(v), TEXT) for v in _list(record.get("verdicts"))],
        "gates": [_cut(str(v), TEXT) for v in _list(record.get("gates"))],
        "ppl": None if look.perplexity is None else short(look.perplexity),
        "delta": look.threshold,
        "tokens": tokens,
        "weights": weights[:TOKENS] if len(weights) == len(_list(record.get("tokens"))) else [],
        "outcome": look.outcome,
        "after": _cut(str(record.get("after") or ""), TEXT),
        "by": _author(record.get("provenance")),
    }
    return {k: v for k, v in entry.items() if v not in (None, "", []) or k == "draft"}


def word_diff(draft: str, correction: str) -> tuple[Segments, Segments]:
    """Both texts in segments, those marked 1 that the other does not have. Spaces go with words.

    Of texts that say one thing over and over, which no comparison is to be had of in time, all is
    marked that lies between their common beginning and end.
    """
    before, after = (re.findall(r"\s*(?:\w+|[^\w\s])|\s+", text) for text in (draft, correction))
    left: Segments = []
    right: Segments = []
    for kind, a, b, c, d in _opcodes(before, after):
        changed = int(kind != "equal")
        for side, words in ((left, before[a:b]), (right, after[c:d])):
            if words:
                side.append([changed, "".join(words)])
    return left, right


def _opcodes(before: list[str], after: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    same = _common(before, after)
    end = _common(before[same:][::-1], after[same:][::-1])
    first, second = before[same : len(before) - end], after[same : len(after) - end]
    if same:
        yield "equal", 0, same, 0, same
    counts = Counter(second)
    if sum(counts[word] for word in first) > PAIRS:
        yield "replace", same, same + len(first), same, same + len(second)
    else:
        matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
        for kind, a, b, c, d in matcher.get_opcodes():
            yield kind, same + a, same + b, same + c, same + d
    if end:
        yield "equal", len(before) - end, len(before), len(after) - end, len(after)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words both begin with."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _author(provenance: Any) -> str:
    """Who wrote the correction, in words; of a model's path its name."""
    if not isinstance(provenance, Mapping):
        return ""
    named = [provenance.get("plugin"), provenance.get("distribution")]
    model = str(provenance.get("model") or "").rstrip("/").rpartition("/")[2]
    named += [f"model {model}" if model else None]
    template = provenance.get("template")
    named += [f"template {template}" if template else None]
    return ", ".join(str(n) for n in named if n)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cut(text: str, most: int) -> str:
    """A long text without its middle; of a history the end says the most."""
    if len(text) <= most:
        return text
    head = most // 4
    return f"{text[:head]}\n… {len(text) - most:,} characters left out …\n{text[head - most :]}"
