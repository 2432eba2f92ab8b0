"""The console: where a run stands, what it learned from, and when it will be over."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from attrs import define, field

from rti import above, anything, option
from rti.events import CheckpointSaved, Evaluated, RunEnded, RunStarted, StepDone
from rti.made_up import Watch
from rti_reporters.bar import Bar


@define
class ConsoleReporter:
    """A line every few steps; on a terminal a live bar, and a line for what is worth one.

    Worth a line are evaluations, checkpoints, steps without signal, faults, and the warning that
    the share of made-up final ids climbs (`rti.made_up.Watch`).
    """

    every: int = option(1, "Print every so many steps.", above(0))
    quiet: bool = option(False, "Print the beginning, evaluations and the end only.", anything)
    _console: Any = field(init=False, default=None, repr=False)
    _steps: int = field(init=False, default=0)
    _times: deque[float] = field(init=False, factory=lambda: deque(maxlen=20))
    _bar: Bar | None = field(init=False, default=None, repr=False)
    _watch: Watch = field(init=False, factory=Watch, repr=False)

    def report(self, event: Any) -> None:
        """Print an event that people want to see."""
        from rich.console import Console

        if self._console is None:
            self._console = Console(highlight=False, soft_wrap=True, emoji=False)
            self._times.append(time.monotonic())
        if isinstance(event, RunEnded):
            self.close()
        line = self._line(event)
        if line:
            self._print(line)
        if isinstance(event, StepDone):
            warning = self._watch.step(event.metrics)
            if warning:
                self._print(f"warning: {warning}")
        if isinstance(event, RunStarted) and self._console.is_terminal and not self.quiet:
            self._bar = Bar(self._console, event.steps, event.step)
            self._bar.open()

    def _print(self, line: str) -> None:
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
            if self._bar is not None:
                done = event.step + 1
                self._bar.update(done, _span(self._eta(done)), "  ".join(self._numbers(event)))
                # Without signal, or with a second sentence: a note on faults, on a spent budget.
                notable = not event.metrics.get("groups_with_signal") or ". " in event.words
                return f"step {done}: {event.words}" if notable else ""
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
        done = event.step + 1
        parts = [f"step {done}/{self._steps}", *self._numbers(event), event.words]
        return "  ".join([*parts, f"ETA {_span(self._eta(done))}"])

    def _numbers(self, event: StepDone) -> list[str]:
        m = event.metrics
        parts = [
            f"pass@1 {m['pass@1']:.2f}",
            f"all failed {m['groups_all_failed']:.0f}/{m['groups']:.0f}",
        ]
        if m["groups_fired"]:
            order = ("candidates", "flagged", "corrected", "verified", "admitted", "trained")
            through = " → ".join(f"{m['funnel/' + name]:.0f} {name}" for name in order)
            parts.append(f"repair {through}")
        if "mean_ppl" in m:
            parts.append(f"PPL {m['mean_ppl']:.1f}")
        return parts

    def _eta(self, done: int) -> float:
        recent = self._times[-1] - self._times[0]
        return recent / max(1, len(self._times) - 1) * max(0, self._steps - done)

    def close(self) -> None:
        """Give the terminal back. Safe to call twice."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole / 3600:.1f} h"
