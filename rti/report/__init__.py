"""`rti report`: a run, or a compare, as one HTML file that opens from the disk.

`source` finds what it was pointed at, `reading` turns events into a `log`, `plots` (with `curves`),
`funnel`, `counts` and `tables` turn that into numbers, `transcripts` chooses what is shown word for
word, `page` puts it all into one file. No module needs more than the core's dependencies.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from rti.checkpoint import write_text
from rti.errors import ConfigError, RunError


@frozen
class Written:
    """A report that was written."""

    path: Path
    size: int
    """Bytes."""
    transcripts: tuple[int, int]
    """(shown, told in the events)."""
    notes: tuple[str, ...]
    """What the reader is warned of: a run without an end, lines that could not be read."""


def write_report(path: Path, out: Path | None = None) -> Written:
    """Write the report of a run's folder or of a compare's.

    Args:
        path: the folder, or its events.jsonl or compare.json.
        out: the HTML file; by default `report.html` in the folder.

    Raises:
        ConfigError: when `path` is neither, or `out` cannot be a file.
        RunError: when there is nothing to report, or the file cannot be written.
    """
    from rti.report.data import page_data
    from rti.report.page import LIMIT, TRANSCRIPTS, page
    from rti.report.source import read_source
    from rti.report.transcripts import transcripts

    source = read_source(path)
    target = source.out if out is None else out
    if target.is_dir():
        raise ConfigError(f"--out {target} is a folder: name a file in it, e.g. report.html.")
    data = page_data(source)
    frame = len(page({**data, "transcripts": {}}).encode("utf-8"))
    found = transcripts(source.cells, max(0, min(TRANSCRIPTS, LIMIT - frame - 1000)))
    text = page({**data, "transcripts": found.as_data()})
    try:
        write_text(target, text)
    except OSError as error:
        raise RunError(f"--out {target}: cannot be written ({error.strerror}).") from error
    return Written(
        target,
        len(text.encode("utf-8")),
        (len(found.entries), found.total),
        tuple(data["notes"]),
    )
