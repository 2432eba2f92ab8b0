"""The console: where a run stands, what it learned from, and when it will be over."""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from rti import Context, above, anything, option
from rti.events import CheckpointSaved, Evaluated, RunEnded, RunStarted, StepDone
from rti.watch import Watch
from rti_reporters.bar import Bar
from rti_reporters.jsonl import FILE, whole_lines


@define
class ConsoleReporter:
    """A line every few steps; on a terminal a live bar, and a line for what is worth one.

    Worth a line are evaluations, checkpoints, steps without signal, faults, and the warning that
    the share of made-up final ids climbs (`rti.watch.Watch`). A reader who leaves ends no run: it
    goes on unseen.
    """

    every: int = option(1, "Print every so many steps.", above(0))
    quiet: bool = option(False, "Print the beginning, evaluations and the end only.", anything)
    _console: Any = field(init=False, default=None, repr=False)
    _steps: int = field(init=False, default=0)
    _times: deque[float] = field(init=False, factory=lambda: deque(maxlen=20))
    _bar: Bar | None = field(init=False, default=None, repr=False)
    _folder: Path | None = field(init=False, default=None)
    _watch: Watch = field(init=False, factory=Watch, repr=False)

    def bind(self, context: Context) -> None:
        """What a run has written so far lies in its folder."""
        self._folder = context.out
        self._watch = Watch(str(context.out))

    def rewind(self, step: int) -> None:
        """Look at the steps that a resumed run has done, so that it goes on watching, not anew."""
        if self._folder is None:
            return
        with suppress(OSError):  # the run has no such log: it is watched from here on
            # Most lines are repaired turns, long ones: they are told apart without reading them.
            for _, record in whole_lines(self._folder / FILE, only=b'"StepDone"'):
                metrics = record.get("metrics")
                if record["step"] < step and isinstance(metrics, dict):
                    self._watch.step(metrics)

    def report(self, event: Any) -> None:
        """Print an event that people want to see."""
        from rich.console import Console

        if self._console is None:
            self._console = Console(highlight=False, soft_wrap=True, emoji=False)
            self._console.on_broken_pipe = _pass_on  # rich would exit
        lines = [self._line(event)]
        if isinstance(event, StepDone):
            warning = self._watch.step(event.metrics)
            lines.append(f"warning: {warning}" if warning else "")
        try:
            self._show(event, [line for line in lines if line])
        except (OSError, ValueError) as error:  # ValueError: the file is closed
            self._lose(error)

    def _show(self, event: Any, lines: list[str]) -> None:
        if isinstance(event, RunEnded):
            self.close()
        if isinstance(event, StepDone) and self._bar is not None:
            done = event.step + 1
            last = self._printable("  ".join(self._numbers(event)))
            self._bar.update(done, _span(self._eta(done)), last)
        for line in lines:
            self._console.print(self._printable(line), markup=False)
            self._console.file.flush()  # a log file shows each line as it comes
        if isinstance(event, RunStarted) and self._has_room_for_a_bar():
            self._bar = Bar(self._console, event.steps, event.step)
            self._bar.open()

    def _has_room_for_a_bar(self) -> bool:
        of = self._console
        return of.is_terminal and not of.is_dumb_terminal and not self.quiet

    def _printable(self, text: str) -> str:
        """The text with a ? for each letter that the output's encoding does not have."""
        encoding = self._console.encoding
        return text.encode(encoding, "replace").decode(encoding)

    def _lose(self, error: Exception) -> None:
        """Nobody reads any more, or nothing takes what is written: that is no reason to stop."""
        self._console.quiet = True
        self.close()
        with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            # Python flushes at exit: not into the pipe.
            os.dup2(nowhere.fileno(), self._console.file.fileno())
        warnings.warn(
            f"nothing takes the console's lines ({error}): the run goes on without", stacklevel=2
        )

    def _line(self, event: Any) -> str:
        if isinstance(event, RunStarted):
            self._steps = event.steps
            where = f"from step {event.step}" if event.step else "from the start"
            by = f"; policy: {event.policy}" if event.policy else ""
            most = f" or {event.token_budget:,} tokens" if event.token_budget else ""
            return f"run {event.out}: {event.steps} steps{most} {where}, seed {event.seed}{by}"
        if isinstance(event, StepDone):
            self._times.append(time.monotonic())
            if self._bar is not None:
                # Without signal, or with a second sentence: a note on faults, on a spent budget.
                notable = not event.metrics.get("groups_with_signal") or ". " in event.words
                return f"step {event.step + 1}: {event.words}" if notable else ""
            if self.quiet or (event.step + 1) % self.every:
                return ""
            return self._step(event)
        if isinstance(event, Evaluated):
            shown = [
                f"{name} {value:.3f}"
                for name, value in event.metrics.items()
                if "pass" in name or "ppl" in name
            ]
            # A family of which every rollout was lost to a fault has none.
            by_family = ", ".join(
                f"{family} {of['pass@1']:.2f}" if "pass@1" in of else f"{family} –"
                for family, of in event.families.items()
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

    def _eta(self, done: int) -> float | None:
        """Seconds to the end at the pace of the last steps; None before there is a pace."""
        if done >= self._steps:
            return 0.0
        if len(self._times) < 2:  # before the first step come models, servers, an evaluation
            return None
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1) * (self._steps - done)

    def close(self) -> None:
        """Give the terminal back. Safe to call twice."""
        bar, self._bar = self._bar, None
        if bar is not None:
            try:
                bar.close()
            except (OSError, ValueError) as error:
                self._lose(error)


def _pass_on() -> None:
    """Called while a `BrokenPipeError` is handled."""
    raise


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole / 3600:.1f} h"
