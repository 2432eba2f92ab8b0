"""`rti pocket quickstart`: GRPO and RTI side by side, from one base, and what came of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from rti import ConfigError, RunError
from rti.checkpoint import write_text
from rti_pocket.world import EASY, HARD

ARMS = {"grpo": "pocket-grpo.toml", "rti": "pocket-rti.toml"}
EDGE = 5
"""Steps averaged for "at start" and "at end" of what is measured every step."""
POLL_SECONDS = 1.0
REPORT_SECONDS = 15.0


@frozen
class Arm:
    """One finished run, read from its events."""

    name: str
    events: tuple[Mapping[str, Any], ...] = field(repr=False)

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        """Events of one kind, in order."""
        return [e for e in self.events if e["event"] == kind]

    def held_out(self, evaluated: Mapping[str, Any], families: Sequence[str]) -> dict[str, float]:
        """Mean over families: they have equally many tasks."""
        rows = [evaluated["families"][f] for f in families]
        return {name: sum(r[name] for r in rows) / len(rows) for name in rows[0]}

    def curve(self) -> list[tuple[int, float]]:
        """(steps done, pass@1 on held-out hard tasks) at every evaluation."""
        return [(e["step"], self.held_out(e, HARD)["pass@1"]) for e in self.of("Evaluated")]

    def all_failed(self) -> list[float]:
        """Groups of each step in which every rollout failed, before intervention."""
        return [e["metrics"]["groups_all_failed"] for e in self.of("StepDone")]

    def summary(self) -> dict[str, float]:
        """The numbers of the table."""
        first, last = self.of("Evaluated")[0], self.of("Evaluated")[-1]
        hard, easy = self.held_out(last, HARD), self.held_out(last, EASY)
        failed, ended = self.all_failed(), self.of("RunEnded")[-1]
        return {
            **hard,
            "easy_pass@1": easy["pass@1"],
            "base_pass@1": self.held_out(first, HARD)["pass@1"],
            "base_easy_pass@1": self.held_out(first, EASY)["pass@1"],
            "all_failed_first": _mean(failed[:EDGE]),
            "all_failed_last": _mean(failed[-EDGE:]),
            "probe_ppl_first": first["metrics"]["probe_ppl"],
            "probe_ppl_last": last["metrics"]["probe_ppl"],
            "seconds": ended["seconds"],
            "tokens": ended["tokens"],
            "steps": float(ended["step"]),
        }


def add_quickstart(sub: Any) -> None:
    """Add the action to the sub-parsers of `rti pocket`."""
    parser: argparse.ArgumentParser = sub.add_parser(
        "quickstart",
        help="train GRPO and RTI from the shipped base and compare them",
        description="Train plain GRPO and RTI on the pocket worlds, side by side on two cores: "
        "same base, same seed, same steps. Then show held-out results, one repaired rollout and a "
        "curve. An interrupted quick start goes on where it was.",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart"), metavar="DIR")
    parser.add_argument("--recipes", type=Path, default=Path("recipes"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0, help="seed of the runs (default 0)")
    parser.add_argument("--base", default="", metavar="DIR", help="another base model's folder")
    parser.add_argument("--steps", type=int, default=0, help="steps (default: as the recipes say)")
    parser.set_defaults(run=quickstart)


def quickstart(args: argparse.Namespace, registry: Any) -> int:
    """Run both arms and show the comparison."""
    for recipe in ARMS.values():
        if not (args.recipes / recipe).is_file():
            raise ConfigError(
                f"--recipes {args.recipes}: no {recipe} in there. Run it from a clone of the "
                "repository, or name its recipes folder."
            )
    runs = [_Process(name, args) for name in ARMS]
    try:
        _wait(runs)
    except BaseException:
        for run in runs:
            run.stop()
        raise
    arms = {run.name: Arm(run.name, tuple(run.read())) for run in runs}
    summary = {name: arm.summary() for name, arm in arms.items()}
    write_text(args.out / "summary.json", json.dumps(summary, indent=2) + "\n")
    _print_table(summary)
    _print_repair(arms["rti"])
    picture = _draw(arms, args.out)
    print(f"\nNumbers: {args.out / 'summary.json'}")
    print(f"Curve:   {picture or 'not drawn: pip install ' + repr('rti-rl[plot]')}")
    print(f"Events:  {args.out / 'rti' / 'events.jsonl'}")
    return 0


def read_events(run: Path) -> list[dict[str, Any]]:
    """The events that a run has written so far; none when it has not begun."""
    path = run / "events.jsonl"
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def arm_environment() -> dict[str, str]:
    """The environment of a training process: one thread, nothing from a hub."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@define
class _Process:
    """One arm as a process of its own: one thread, one core."""

    name: str
    args: argparse.Namespace
    _process: Any = field(init=False, default=None)
    _log: Any = field(init=False, default=None)

    @property
    def folder(self) -> Path:
        return Path(self.args.out / self.name)

    def start(self) -> None:
        command = [
            sys.executable, "-m", "rti", "train", str(self.args.recipes / ARMS[self.name]),
            "--resume", "--set", f"run.out={self.folder}", "--set", f"run.seed={self.args.seed}",
        ]  # fmt: skip
        if self.args.base:
            command += ["--set", f"model.path={self.args.base}"]
        if self.args.steps:
            command += ["--set", f"run.steps={self.args.steps}"]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "console.log").open("a", encoding="utf-8")
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own arguments
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=arm_environment(),
        )

    def done(self) -> bool:
        code = self._process.poll()
        if code is None:
            return False
        if code:
            raise RunError(
                f"the {self.name} run ended with exit code {code}; the end of "
                f"{self.folder / 'console.log'}:\n{self._tail()}"
            )
        return True

    def stop(self) -> None:
        """Interrupt, so that it saves; then make sure."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._log is not None:
            self._log.close()

    def read(self) -> list[dict[str, Any]]:
        return read_events(self.folder)

    def state(self) -> str:
        events = self.read()
        steps = [e for e in events if e["event"] == "StepDone"]
        started = next((e for e in reversed(events) if e["event"] == "RunStarted"), None)
        if started is None:
            return f"{self.name}: loading"
        if not steps:
            return f"{self.name}: evaluating the base"
        failed = steps[-1]["metrics"]["groups_all_failed"]
        groups = steps[-1]["metrics"]["groups"]
        at = f"step {steps[-1]['step'] + 1}/{started['steps']}"
        return f"{self.name}: {at}, {failed:.0f} of {groups:.0f} groups all failed"

    def _tail(self) -> str:
        text = (self.folder / "console.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-15:])


def _wait(runs: Sequence[_Process]) -> None:
    cores = os.cpu_count() or 1
    waiting, running = list(runs), list[_Process]()
    began = reported = time.monotonic()
    while waiting or running:
        while waiting and len(running) < max(1, cores):
            running.append(waiting.pop(0))
            running[-1].start()
        running = [run for run in running if not run.done()]
        now = time.monotonic()
        if now - reported >= REPORT_SECONDS and running:
            reported = now
            states = "   ".join(run.state() for run in runs if run in running)
            print(f"{now - began:4.0f} s   {states}", flush=True)
        time.sleep(POLL_SECONDS)


_ROWS = (
    ("pass@1 before training", "base_pass@1", "{:.3f}"),
    ("pass@1", "pass@1", "{:.3f}"),
    ("pass@8", "pass@8", "{:.3f}"),
    ("pass^8", "pass^8", "{:.3f}"),
    ("pass@1 on easy tasks, before", "base_easy_pass@1", "{:.3f}"),
    ("pass@1 on easy tasks", "easy_pass@1", "{:.3f}"),
    (f"all-failed groups of 12, first {EDGE} steps", "all_failed_first", "{:.1f}"),
    (f"all-failed groups of 12, last {EDGE} steps", "all_failed_last", "{:.1f}"),
    ("PPL of the right turn (fixed probe), before", "probe_ppl_first", "{:.2f}"),
    ("PPL of the right turn (fixed probe)", "probe_ppl_last", "{:.2f}"),
    ("tokens sampled and scored", "tokens", "{:,.0f}"),
    ("seconds", "seconds", "{:.0f}"),
)


def _print_table(summary: Mapping[str, Mapping[str, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Held-out hard tasks, unless the row says otherwise")
    table.add_column("")
    for name in summary:
        table.add_column(name.upper(), justify="right")
    for label, key, form in _ROWS:
        table.add_row(label, *(form.format(arm[key]) for arm in summary.values()))
    Console().print("\n", table)


def _print_repair(arm: Arm) -> None:
    """The first repaired rollout of the telecom desk that entered its group, for people to read."""
    trained = [e for e in arm.of("TurnRepaired") if e["trained"]]
    if not trained:
        print("\nNo repaired rollout entered a group in this run.")
        return
    shown = min(trained, key=lambda e: (e["family"] != "AH", e["step"]))
    print(
        f"\nA repaired rollout (step {shown['step'] + 1}, task {shown['task']}, turn "
        f"{shown['turn']}):\n"
        f"  so far      {shown['history']}\n"
        f"  draft       {shown['draft']}\n"
        f"  diagnosis   {shown['diagnosis']}\n"
        f"  correction  {shown['correction']}\n"
        f"  gate        PPL {shown['perplexity']:.2f}; {', '.join(shown['gates'])}\n"
        "  weights     "
        + "  ".join(
            f"{token} {weight:.2f}"
            for token, weight in zip(shown["tokens"], shown["weights"], strict=True)
        )
        + f"\n  outcome     {shown['outcome']:g} (the draft's was 0)"
    )


def _draw(arms: Mapping[str, Arm], out: Path) -> Path | None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = {"grpo": "#888888", "rti": "#0b6e99"}
    for name, arm in arms.items():
        steps, values = zip(*arm.curve(), strict=True)
        left.plot(steps, values, marker="o", color=colours[name], label=name.upper())
        failed = arm.all_failed()
        right.plot(range(1, len(failed) + 1), failed, color=colours[name], label=name.upper())
    left.set(title="Held-out hard tasks", xlabel="step", ylabel="pass@1", ylim=(-0.03, 1))
    right.set(title="Groups in which every rollout failed", xlabel="step", ylabel="of 12 groups")
    right.set_ylim(bottom=0)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    path = out / "curve.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
