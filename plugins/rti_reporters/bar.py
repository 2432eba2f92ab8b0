"""The live display of a run on a terminal: a bar, and the last step under it."""

from __future__ import annotations

from typing import Any

from attrs import define, field


@define
class Bar:
    """Stays at the bottom while lines are printed above it; gone when it is closed.

    It is drawn when something is told, by no thread of its own.
    """

    console: Any
    steps: int
    done: int = 0
    _live: Any = field(init=False, default=None, repr=False)
    _progress: Any = field(init=False, default=None, repr=False)
    _task: Any = field(init=False, default=None, repr=False)

    def open(self) -> None:
        """Begin to show it."""
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("ETA {task.fields[eta]}", markup=False),
        )
        self._task = self._progress.add_task("", total=self.steps, completed=self.done, eta="?")
        live = Live(self._progress, console=self.console, auto_refresh=False, transient=True)
        live.start(refresh=True)  # where it fails it has stopped again
        self._live = live

    def update(self, done: int, eta: str, last: str) -> None:
        """Show a finished step."""
        from rich.console import Group
        from rich.text import Text

        if self._live is not None:
            self._progress.update(self._task, completed=done, eta=eta)
            self._live.update(Group(self._progress, Text(last)), refresh=True)

    def close(self) -> None:
        """Give the terminal back. Safe to call twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None
