"""`rti eval CONFIG`: pass@1, pass@k and pass^k of a policy, without intervention."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rti.commands import add_config_arguments

if TYPE_CHECKING:
    from rti.assemble import Examination
    from rti.config import Config
    from rti.evaluate import Trial
    from rti.evaluation.store import TrialStore
    from rti.registry import Registry

PAGE = "eval.md"
EVERY_S = 10.0
"""Seconds between two lines of progress."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti eval`."""
    parser.description = (
        "Evaluate the policy of a config on [eval] split: pass@1, pass@k and pass^k with [eval] "
        "trials rollouts a task. Evaluation never intervenes. With --out it can be stopped at any "
        "moment and goes on when it is run again. --table sets several results side by side."
    )
    add_config_arguments(parser, required=False)
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="evaluate these weights: a checkpoint, or a run's folder for its newest one "
        "(default: the weights of [model] path)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="keep every trial in this folder, go on with those that it holds, and write the "
        "result into it: eval.json, eval.md (with --table: table.json, table.md)",
    )
    parser.add_argument(
        "--table",
        nargs="+",
        metavar="RESULT",
        help="evaluate nothing: print a table of these results, folders or eval.json; a row's name "
        "may be given, as in ours=runs/eval-a",
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="what the table is of (default: pass@1); may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Evaluate, or set results side by side, and print."""
    from rti.errors import ConfigError

    if args.out is not None and (args.out.is_file() or args.out.suffix in (".json", ".md")):
        raise ConfigError(f"--out {args.out}: name a folder; eval.json is written into it.")
    if args.table is not None:
        if args.config is not None or args.checkpoint is not None or args.set:
            raise ConfigError("--table evaluates nothing: give it results, and no CONFIG.")
        return _table(args)
    if args.config is None:
        raise ConfigError("name a CONFIG to evaluate, or --table RESULT... to compare results.")
    if args.metric:
        raise ConfigError("--metric is for --table: an evaluation gives all of them.")
    return _evaluation(args, registry)


def _table(args: argparse.Namespace) -> int:
    from rti.checkpoint import write_text
    from rti.evaluation.table import as_markdown, as_table, read_results

    results = read_results(args.table)
    tables = [as_table(results, metric) for metric in args.metric or ["pass@1"]]
    page = "\n".join(map(as_markdown, tables))
    text = json.dumps(tables, indent=2, ensure_ascii=False)
    if args.out:
        write_text(args.out / "table.json", text + "\n")
        write_text(args.out / "table.md", page)
    print(text if args.json else page)
    return 0


def _evaluation(args: argparse.Namespace, registry: Registry) -> int:
    from rti.assemble import assemble_evaluation
    from rti.checkpoint import write_text
    from rti.config import load_config
    from rti.engine import checkpoint_to_read
    from rti.evaluation.record import as_markdown, as_text
    from rti.evaluation.table import RESULT

    config = load_config(args.config, args.set)
    if args.out:
        config = _writing_into(config, args.out)
    checkpoint = checkpoint_to_read(args.checkpoint) if args.checkpoint else None
    made = assemble_evaluation(config, registry, restores=checkpoint is not None)
    record = asyncio.run(_evaluate(made, checkpoint, args.out))
    text = json.dumps(record, indent=2, ensure_ascii=False)
    if args.out:
        write_text(args.out / RESULT, text + "\n")
        write_text(args.out / PAGE, as_markdown(record))
    print(text if args.json else as_text(record))
    return 0


def _writing_into(config: Config, out: Path) -> Config:
    """Whatever the policy writes (a server's log, a budget) lies with the evaluation."""
    from attrs import evolve

    return evolve(config, run=evolve(config.run, out=str(out)))


async def _evaluate(made: Examination, checkpoint: Path | None, out: Path | None) -> dict[str, Any]:
    from rti.checkpoint import read_state
    from rti.engine import evaluate_run, tasks_to_evaluate, versions
    from rti.evaluation.identity import identity
    from rti.evaluation.record import as_record, default_ks
    from rti.evaluation.store import TrialStore
    from rti.scoring import maybe

    try:
        await maybe(made.policy, "ready")
        tasks = tasks_to_evaluate(made)
        who = identity(made, tasks, checkpoint)
        used = {**versions(), **_environment_version(made)}
        trials = made.config.eval.trials
        with TrialStore.opened(out, who, used) if out else nullcontext() as store:
            wanted = {(task.id, i) for task in tasks for i in range(trials)}
            done = [t for t in store.whole if (t.task, t.trial) in wanted] if store else []
            if checkpoint is not None:
                assert made.trainer is not None
                made.trainer.restore(checkpoint)
                version = read_state(checkpoint).policy_version
                await made.policy.load(made.trainer.weights(), version)
            progress = Progress(len(wanted), done)
            result = await evaluate_run(made, default_ks(trials), done, _finished(progress, store))
            seen = store.versions if store else [used]
        return as_record(made, result, tasks, seen, who, checkpoint)
    finally:
        await made.close()


def _finished(progress: Progress, store: TrialStore | None) -> Callable[[Trial], None]:
    def finished(trial: Trial) -> None:
        if store is not None:
            store.append(trial)
        progress.finished(trial)

    return finished


def _environment_version(made: Examination) -> Mapping[str, str]:
    """The version of the distribution that the tasks come from."""
    origin = made.registry.provenance("environment", made.config.environment.use)
    return {origin.distribution: origin.version}


class Progress:
    """Lines on stderr: how far it is, what is found so far, how long it will take."""

    def __init__(
        self,
        total: int,
        done: Sequence[Trial] = (),
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.before, self.every_s, self.clock = total, len(done), every_s, clock
        self.done, self.faults = len(done), 0
        self.successes = sum(t.success for t in done)
        self.began = self.said = clock()
        if done:
            self._say(f"going on: {len(done)} of {total} trials are done already")

    def finished(self, trial: Trial) -> None:
        """Count a trial, and say so now and then."""
        self.done += 1
        self.faults += trial.fault is not None
        self.successes += trial.success
        now = self.clock()
        if self.done == self.total or now - self.said >= self.every_s:
            self.said = now
            whole = self.done - self.faults
            rate = f"{self.successes / whole:.2f} succeeded" if whole else "none whole"
            faults = f", {self.faults} faults" if self.faults else ""
            left = (now - self.began) / (self.done - self.before) * (self.total - self.done)
            self._say(f"{self.done}/{self.total} trials, {rate}{faults}, ETA {left:.0f} s")

    def _say(self, text: str) -> None:
        print(f"eval: {text}", file=sys.stderr, flush=True)
