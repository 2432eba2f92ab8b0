"""How a compare is going: a line for each process at work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

from rti.compare.cells import last_events
from rti.compare.run import Plan
from rti.compare.schedule import Job

PLAIN_SECONDS = 60.0
"""Between two reports where there is no terminal."""
TAIL_BYTES = 1 << 17


@define
class Progress:
    """Shows what runs: live on a terminal, now and then a line in a log."""

    plan: Plan
    console: Any
    _live: Any = field(init=False, default=None)
    _told: float = field(init=False, factory=time.monotonic)
    _began: float = field(init=False, factory=time.monotonic)

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *what: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*what)

    def tell(self, running: Sequence[Job]) -> None:
        """Show the jobs that run."""
        now = time.monotonic()
        if self._live is None and now - self._told < PLAIN_SECONDS:
            return
        self._told = now
        cells = self.plan.cells
        done = sum(cell.done for cell in cells)
        lines = [f"{done} of {len(cells)} runs done, {now - self._began:.0f} s"]
        folders = {cell.name: cell.folder for cell in cells}
        lines += [f"  {job.name}: {state(folders.get(job.name))}" for job in running]
        if self._live is None:
            self.console.print("; ".join(line.strip() for line in lines), markup=False)
            return
        from rich.text import Text

        self._live.update(Text("\n".join(lines)), refresh=True)


def state(folder: Path | None) -> str:
    """Where a run stands, by the end of its events."""
    if folder is None:
        return "preparing"
    steps = first = None
    for event in last_events(folder, TAIL_BYTES):
        if event["event"] == "StepDone":
            steps, first = event, first or event
    if steps is None or first is None:
        return "loading"
    pace = f", pass@1 {steps['metrics'].get('pass@1', 0):.2f} in training"
    return f"step {steps['step'] + 1}{pace}"
