"""The console: a line a step, the funnel, and when it will be over."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from attrs import define, field

from rti import above, anything, option
from rti.events import CheckpointSaved, Evaluated, RunEnded, RunStarted, StepDone


@define
class ConsoleReporter:
    """Prints one line every few steps, and whatever is worth a line of its own."""

    every: int = option(1, "Print every so many steps.", above(0))
    quiet: bool = option(False, "Print the beginning, evaluations and the end only.", anything)
    _console: Any = field(init=False, default=None, repr=False)
    _steps: int = field(init=False, default=0)
    _times: deque[float] = field(init=False, factory=lambda: deque(maxlen=20))

    def report(self, event: Any) -> None:
        """Print an event that people want to see."""
        from rich.console import Console

        if self._console is None:
            self._console = Console(highlight=False, soft_wrap=True, emoji=False)
            self._times.append(time.monotonic())
        line = self._line(event)
        if line:
            self._console.print(line, markup=False)
            self._console.file.flush()  # a log file shows each line as it comes

    def _line(self, event: Any) -> str:
        if isinstance(event, RunStarted):
            self._steps = event.steps
            where = f"from step {event.step}" if event.step else "from the start"
            by = f"; policy: {event.policy}" if event.policy else ""
            return f"run {event.out}: {event.steps} steps {where}, seed {event.seed}{by}"
        if isinstance(event, StepDone):
            self._times.append(time.monotonic())
            if self.quiet or (event.step + 1) % self.every:
                return ""
            return self._step(event)
        if isinstance(event, Evaluated):
            shown = [
                f"{name} {value:.3f}"
                for name, value in event.metrics.items()
                if "pass" in name or "ppl" in name
            ]
            by_family = ", ".join(
                f"{family} {of['pass@1']:.2f}" for family, of in event.families.items()
            )
            line = f"eval after step {event.step}: " + "  ".join(shown)
            return f"{line}  (pass@1 by family: {by_family})" if len(event.families) > 1 else line
        if isinstance(event, CheckpointSaved) and not self.quiet:
            return f"checkpoint {event.path}"
        if isinstance(event, RunEnded):
            after = f" ({event.reason})" if event.reason else ""
            return (
                f"{event.status} after {event.step} steps, {event.seconds:.0f} s, "
                f"{event.tokens:,.0f} tokens{after}"
            )
        return ""

    def _step(self, event: StepDone) -> str:
        m = event.metrics
        parts = [
            f"step {event.step + 1}/{self._steps}",
            f"pass@1 {m['pass@1']:.2f}",
            f"all failed {m['groups_all_failed']:.0f}/{m['groups']:.0f}",
        ]
        if m["groups_fired"]:
            order = ("candidates", "flagged", "corrected", "verified", "admitted", "trained")
            through = " → ".join(f"{m['funnel/' + name]:.0f} {name}" for name in order)
            parts.append(f"repair {through}")
        if "mean_ppl" in m:
            parts.append(f"PPL {m['mean_ppl']:.1f}")
        parts.append(event.words)
        parts.append(f"ETA {_span(self._eta(event.step + 1))}")
        return "  ".join(parts)

    def _eta(self, done: int) -> float:
        recent = self._times[-1] - self._times[0]
        return recent / max(1, len(self._times) - 1) * max(0, self._steps - done)

    def close(self) -> None:
        """Nothing to release."""


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole / 3600:.1f} h"
