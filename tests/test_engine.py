"""The training loop: order of tasks, resuming bit for bit, killed runs, events."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import define, evolve, field
from fakes import SpeakingPolicy, gives_up
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import ConfigError, InfrastructureError, NumericsError, RunError, Task, engine
from rti.checkpoint import State, read_state
from rti.cli import main
from rti.engine import checkpoint_to_read, tasks_of_step, train

TASKS = [Task(f"{f}-{i}", f) for f, n in (("AH", 5), ("BH", 3), ("A1", 4)) for i in range(n)]


# --- which tasks come when ------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(1, 7), st.integers(1, 12))
def test_every_task_comes_once_before_any_comes_again(seed, count, size):
    tasks = TASKS[:size]
    order = [t.id for step in range(30) for t in tasks_of_step(tasks, step, seed, count, {})]
    for start in range(0, len(order) - size + 1, size):
        assert sorted(order[start : start + size]) == sorted(t.id for t in tasks)


def test_families_go_round_independently_and_in_the_order_named():
    families = {"BH": 2, "AH": 1}
    steps = [tasks_of_step(TASKS, step, 0, 99, families) for step in range(15)]
    assert all([t.family for t in tasks] == ["BH", "BH", "AH"] for tasks in steps)
    counts = Counter(t.id for tasks in steps for t in tasks)
    assert {counts[f"BH-{i}"] for i in range(3)} == {10}
    assert {counts[f"AH-{i}"] for i in range(5)} == {3}


def test_the_order_is_drawn_by_seed_and_each_lap_anew():
    def lap(number, seed):
        return tasks_of_step(TASKS, number, seed, 12, {})

    assert lap(0, 1) == lap(0, 1)
    assert lap(0, 1) != lap(0, 2)
    assert lap(0, 1) != lap(1, 1)


def test_tasks_of_resampling_have_an_order_of_their_own_in_each_round():
    def tasks(step, number, seed=0, families=None):
        return tasks_of_step(TASKS, step, seed, 4, families or {}, number)

    assert tasks(2, 1) == tasks(2, 1)
    drawn = [[t.id for step in range(3) for t in tasks(step, number)] for number in range(3)]
    assert all(sorted(lap) == sorted(t.id for t in TASKS) for lap in drawn)  # 3 × 4 tasks
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    assert tasks(0, 1) != tasks(0, 1, seed=1)
    # Each place keeps its family.
    mixed = {"BH": 2, "AH": 1}
    assert [t.family for t in tasks(5, 2, families=mixed)] == ["BH", "BH", "AH"]
    assert tasks(5, 0, families=mixed) == tasks_of_step(TASKS, 5, 0, 4, mixed)


def test_no_such_tasks_is_an_error():
    with pytest.raises(ConfigError, match=r"\[rollout\] families: no task is of family 'CX'"):
        tasks_of_step(TASKS, 0, 0, 1, {"CX": 1})
    with pytest.raises(ConfigError, match=r"\[rollout\] split has no tasks"):
        tasks_of_step([], 0, 0, 1, {})


# --- runs -----------------------------------------------------------------------------------


def go(run, resume=False):
    return asyncio.run(train(run, resume=resume))


def events_of(out, *kinds):
    lines = (Path(out) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [e for e in map(json.loads, lines) if not kinds or e["event"] in kinds]


def told(out):
    """Steps and repairs without what a clock says."""
    found = events_of(out, "StepDone", "TurnRepaired")
    for event in found:
        del event["time"]
        for name in [n for n in event.get("metrics", {}) if "seconds" in n]:
            del event["metrics"][name]
    return found


def files(out, step):
    """The bytes of a checkpoint's tensors."""
    folder = Path(out) / "checkpoints" / f"step-{step:06d}"
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


@pytest.fixture
def build(pocket, tmp_path):
    def made(name, *overrides):
        return pocket(f"run.out={tmp_path / name}", *overrides)

    return made


def test_a_run_learns_reports_and_saves(build):
    run = build("run", "eval.every=2", "eval.tasks=2", "eval.trials=2")
    before = {n: w.clone() for n, w in run.trainer.weights().items()}
    state = go(run)
    assert state.step == 3
    kinds = [e["event"] for e in events_of(run.out) if e["event"] != "TurnRepaired"]
    assert kinds == [
        "RunStarted", "Evaluated", "StepDone", "CheckpointSaved", "StepDone", "Evaluated",
        "CheckpointSaved", "StepDone", "Evaluated", "CheckpointSaved", "RunEnded",
    ]  # fmt: skip
    started, *_, ended = events_of(run.out)
    assert (started["step"], started["steps"], started["seed"]) == (0, 3, 3)
    assert started["plugins"]["policy"] == "hf"
    assert started["plugins"]["reporter"] == "jsonl"
    assert started["plugins"]["veto"] == "leaks"
    assert started["token_budget"] == 0
    assert (ended["status"], ended["step"], ended["tokens"]) == ("done", 3, state.tokens)
    assert [e["step"] for e in events_of(run.out, "Evaluated")] == [0, 2, 3]
    steps = events_of(run.out, "StepDone")
    learned = [e for e in steps if e["metrics"]["groups_with_signal"]]
    assert learned
    assert all("loss" in e["metrics"] and "give signal" in e["words"] for e in learned)
    assert [e["policy_version"] for e in steps][-1] == len(learned) == state.policy_version
    assert steps[-1]["metrics"]["tokens"] == state.tokens > 0
    after = run.trainer.weights()
    assert any(not torch.equal(w, after[n]) for n, w in before.items())
    held = dict(run.policy._decoder.model.named_parameters())
    assert all(torch.equal(w, held[n]) for n, w in after.items())  # the policy has the new weights
    saved = run.out / "checkpoints" / "step-000003"
    assert read_state(saved) == state
    assert [p.name for p in (run.out / "checkpoints").iterdir()] == ["step-000003"]  # keep = 1
    assert tomllib.loads((run.out / "config.toml").read_text())["rollout"]["group_size"] == 4
    assert sorted(p.name for p in run.out.iterdir()) == [
        "checkpoints", "config.toml", "events.jsonl"
    ]  # fmt: skip


def test_a_step_without_signal_changes_nothing_and_says_so(build):
    run = build("run", "trigger.use=never", "run.steps=2", "rollout.families={AH = 1}")
    run.actor.policy = SpeakingPolicy(run.policy, run.renderer, gives_up)
    before = {n: w.clone() for n, w in run.trainer.weights().items()}
    state = go(run)
    assert (state.step, state.policy_version) == (2, 0)
    assert all(torch.equal(w, before[n]) for n, w in run.trainer.weights().items())
    for event in events_of(run.out, "StepDone"):
        assert event["words"] == (
            "No signal: 1 of 1 group all failed; no intervention was triggered. "
            "The weights stay as they are."
        )
        assert "loss" not in event["metrics"]


def test_resuming_is_bit_for_bit(build):
    go(build("whole", "run.steps=4"))
    go(build("halves", "run.steps=2"))
    state = go(build("halves", "run.steps=4"), resume=True)
    whole, halves = (build(name).out for name in ("whole", "halves"))
    assert files(halves, 4) == files(whole, 4) != {}
    assert set(files(whole, 4)) == {"model.safetensors", "optimiser.safetensors"}
    assert told(halves) == told(whole)
    assert [e["step"] for e in events_of(halves, "StepDone")] == [0, 1, 2, 3]
    assert any("loss" in e["metrics"] for e in events_of(whole, "StepDone")[2:])
    before = read_state(whole / "checkpoints" / "step-000004")
    assert evolve(state, seconds=0) == evolve(before, seconds=0)
    # A run that is over stays as it is.
    again = go(build("halves", "run.steps=4"), resume=True)
    assert again == state
    assert files(halves, 4) == files(whole, 4)


def test_a_run_that_resamples_draws_the_same_tasks_when_it_is_resumed(build):
    options = ("trigger.use=resample", "rollout.max_new_tokens=20", "rollout.group_size=3")
    go(build("whole", "run.steps=3", *options))
    go(build("halves", "run.steps=2", *options))
    go(build("halves", "run.steps=3", *options), resume=True)
    whole, halves = (build(name).out for name in ("whole", "halves"))
    assert files(halves, 3) == files(whole, 3) != {}
    assert told(halves) == told(whole)
    steps = [e["metrics"] for e in told(whole) if e["event"] == "StepDone"]
    assert all(0 < m["groups_resampled"] <= 2 * 5 for m in steps)
    assert all(m["groups"] == 5 + m["groups_resampled"] for m in steps)
    assert all(m["rollouts"] == 3 * m["groups"] for m in steps)


def test_resuming_without_a_checkpoint_begins_anew(build):
    whole = build("whole", "run.steps=2")
    go(whole)
    cut = build("cut", "run.steps=2", "checkpoint.every=0", "eval.every=1", "eval.tasks=1")

    class Stops:
        def report(self, event):
            if type(event).__name__ == "StepDone":
                raise RunError("the power is gone")

        def close(self): ...

    cut.reporters = [*cut.reporters, Stops()]
    with pytest.raises(RunError, match="the power is gone"):
        go(cut)
    go(
        build("cut", "run.steps=2", "checkpoint.every=0", "eval.every=1", "eval.tasks=1"),
        resume=True,
    )
    assert files(cut.out, 2) == files(whole.out, 2)
    assert told(cut.out) == told(whole.out)
    assert [e["step"] for e in events_of(cut.out, "Evaluated")] == [0, 1, 2]
    assert [e["status"] for e in events_of(cut.out, "RunEnded")] == ["done"]


def test_the_seconds_of_a_run_hold_its_evaluations(build, monkeypatch):
    """Those of a checkpoint too: a resumed run counts on from there."""
    real = engine.evaluate_run

    async def slow(run):
        await asyncio.sleep(0.7)
        return await real(run)

    monkeypatch.setattr(engine, "evaluate_run", slow)
    run = build("slow", "run.steps=1", "eval.every=1")
    state = go(run)
    steps = events_of(run.out, "StepDone")
    own = sum(v for e in steps for k, v in e["metrics"].items() if k.startswith("seconds_"))
    assert state.seconds >= 1.4 + own


def test_evaluating_changes_nothing_in_training(build):
    """Even on the very tasks that are trained on, whose prefixes it leaves in the cache."""
    quiet = build("quiet", "environment.train_tasks=2")
    watched = build(
        "watched", "eval.every=1", "eval.split=train", "eval.trials=4", "environment.train_tasks=2"
    )
    go(quiet)
    go(watched)
    assert len(events_of(watched.out, "Evaluated")) == 4
    assert files(watched.out, 3) == files(quiet.out, 3)


def test_a_folder_in_use_is_refused(build, tmp_path):
    go(build("run", "run.steps=1"))
    with pytest.raises(ConfigError, match=r"holds a run already. Go on with it by --resume, or"):
        go(build("run", "run.steps=1"))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.toml").write_text("")
    with pytest.raises(ConfigError, match="holds a run already"):
        go(build("half"))
    assert (tmp_path / "half" / "config.toml").read_text() == ""


@pytest.mark.parametrize(
    ("change", "section", "was", "now"),
    [
        ("trainer.learning_rate=0.1", "trainer", "0.0005", "0.1"),
        ("run.seed=9", "run", "'seed': 3", "'seed': 9"),
        ("rollout.group_size=3", "rollout", "'group_size': 4", "'group_size': 3"),
        ("gate.delta=7", "gate", "'delta': 5.0", "'delta': 7.0"),
        ("trigger.use=never", "trigger", "all-failed", "never"),
    ],
)
def test_a_changed_config_is_not_resumed(build, change, section, was, now):
    first = build("run", "run.steps=1", "rollout.families={A1 = 1}")
    go(first)
    kept = (first.out / "config.toml").read_text()
    with pytest.raises(ConfigError) as caught:
        go(build("run", "run.steps=2", "rollout.families={A1 = 1}", change), resume=True)
    message = str(caught.value)
    assert message.startswith(f"--resume: [{section}] differs from the run in")
    assert was in message
    assert now in message
    assert "--set run.out=" in message
    assert (first.out / "config.toml").read_text() == kept


def test_length_reporters_checkpoints_and_evaluation_may_change(build):
    go(build("run", "run.steps=1", "rollout.families={A1 = 1}"))
    more = [
        "run.steps=2",
        "checkpoint.keep=3",
        "eval.every=1",
        "eval.tasks=1",
        "run.token_budget=10",
    ]
    state = go(build("run", "rollout.families={A1 = 1}", *more), resume=True)
    assert state.step == 1  # the new budget is used up already


def test_a_token_budget_ends_the_run(build):
    run = build("run", "run.token_budget=1", "eval.every=5", "eval.tasks=1", "eval.trials=1")
    state = go(run)
    assert (state.step, state.tokens > 1) == (1, True)
    assert events_of(run.out, "RunStarted")[0]["token_budget"] == 1
    assert events_of(run.out, "RunEnded")[0]["status"] == "done"
    assert [e["step"] for e in events_of(run.out, "Evaluated")] == [0, 1]  # at the end, too
    assert (run.out / "checkpoints" / "step-000001").is_dir()


def test_a_run_that_fails_says_why_and_leaves_its_last_checkpoint(build):
    run = build("run")
    real, calls = run.trainer.step, []

    def breaks(batch):
        calls.append(batch)
        if len(calls) == 2:
            raise NumericsError("[trainer] the gradient's norm is nan: no update was made")
        return real(batch)

    run.trainer = Wrapped(run.trainer, step=breaks)
    with pytest.raises(NumericsError, match="norm is nan"):
        go(run)
    ended = events_of(run.out, "RunEnded")[0]
    assert ended["status"] == "failed"
    assert "norm is nan" in ended["reason"]
    newest = checkpoint_to_read(run.out)
    assert read_state(newest).step == ended["step"]
    assert read_state(newest).policy_version == 1


class Wrapped:
    """A trainer with one method replaced."""

    def __init__(self, inner, **methods):
        self.__dict__.update(methods)
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Breaks:
    """A reporter that breaks at one kind of event, or when it is closed; it keeps what it heard."""

    def __init__(self, *at):
        self.at, self.heard = at, []

    def report(self, event):
        self._take(type(event).__name__)

    def close(self):
        self._take("close")

    def _take(self, what):
        self.heard.append(what)
        if what in self.at:
            raise OSError(f"no space left at {what}")


@pytest.mark.parametrize("at", ["RunEnded", "close"])
def test_a_reporter_that_breaks_at_the_end_keeps_no_other_from_ending(build, at):
    run = build("run", "run.steps=1", "rollout.families={A1 = 1}")
    first, last = Breaks(at), Breaks()
    run.reporters = [first, *run.reporters, last]
    with pytest.raises(OSError, match=f"no space left at {at}"):
        go(run)
    assert first.heard[-2:] == last.heard[-2:] == ["RunEnded", "close"]
    assert [e["status"] for e in events_of(run.out, "RunEnded")] == ["done"]
    assert read_state(checkpoint_to_read(run.out)).step == 1


@pytest.mark.parametrize("at", ["RunStarted", "StepDone", "CheckpointSaved"])
def test_a_reporter_that_breaks_on_the_way_fails_the_run_and_all_are_told(build, at):
    run = build("run", "run.steps=1", "rollout.families={A1 = 1}")
    first, last = Breaks(at, "RunEnded", "close"), Breaks()
    run.reporters = [first, *run.reporters, last]
    with (
        pytest.warns(UserWarning, match="a reporter crashed: OSError: no space left at close"),
        pytest.raises(OSError, match=f"no space left at {at}"),
    ):
        go(run)
    assert last.heard[-3:] == [at, "RunEnded", "close"]
    [ended] = events_of(run.out, "RunEnded")
    assert (ended["status"], ended["reason"]) == ("failed", f"no space left at {at}")


def test_a_checkpoint_that_cannot_be_saved_is_told_too(build):
    """When Ctrl-C comes on a full disk."""
    run = build("run", "run.steps=2", "checkpoint.every=0")
    heard = Breaks()
    run.reporters = [*run.reporters, heard]

    def save(folder):
        raise OSError("no space left")

    class Interrupts:
        def report(self, event):
            if type(event).__name__ == "StepDone":
                asyncio.current_task().cancel()

        def close(self): ...

    run.reporters = [*run.reporters, Interrupts()]
    run.trainer = Wrapped(run.trainer, save=save)
    with pytest.raises(OSError, match="no space left"):
        go(run)
    assert heard.heard[-2:] == ["RunEnded", "close"]


def test_which_checkpoint_is_read(build, tmp_path):
    run = build("run", "run.steps=2", "checkpoint.keep=2")
    go(run)
    newest = run.out / "checkpoints" / "step-000002"
    assert checkpoint_to_read(run.out) == newest
    assert checkpoint_to_read(newest.parent / "step-000001").name == "step-000001"
    with pytest.raises(ConfigError, match="neither a checkpoint nor a run with one"):
        checkpoint_to_read(tmp_path / "nowhere")


# --- killed and interrupted runs ------------------------------------------------------------


class Child:
    """`rti` in a process of its own, forked: the imports are paid for already."""

    def __init__(self, *words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # forking beside torch's idle threads is all right here
            self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            code = 99
            try:
                code = main(words)
            finally:
                os._exit(code)
        self.status = None

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        return self.status is not None

    def wait(self, seconds=120):
        until = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > until:
                self.send(signal.SIGKILL)
                raise AssertionError("the run did not end")
            time.sleep(0.005)
        return os.waitstatus_to_exitcode(self.status)

    def wait_for_steps(self, out, count, seconds=120):
        """Until the run has told of `count` more steps than now, or is over."""
        log, until = out / "events.jsonl", time.monotonic() + seconds
        wanted = count + self.steps(log)
        while not self.ended() and self.steps(log) < wanted:
            assert time.monotonic() < until
            time.sleep(0.005)

    @staticmethod
    def steps(log):
        return log.read_bytes().count(b'"event": "StepDone"') if log.exists() else 0

    def send(self, what):
        if not self.ended():
            os.kill(self.pid, what)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@forks
@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_parameters(build, pocket_toml, tmp_path):
    whole = build("whole", "run.steps=6", "checkpoint.every=2")
    go(whole)
    out = tmp_path / "killed"
    words = ["train", str(pocket_toml), "--resume", "--set", "run.steps=6"]
    words += ["--set", f"run.out={out}", "--set", "checkpoint.every=2"]
    moments, kills = random.Random(0), 0
    for count in (0, 1, 1):  # the first before any step is done
        child = Child(*words)
        child.wait_for_steps(out, count)
        time.sleep(moments.random() * 0.4)
        child.send(signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL
    assert kills == 3
    assert Child(*words).wait() == 0
    assert files(out, 6) == files(whole.out, 6) != {}
    # Nothing twice, nothing missing, no line cut short.
    assert told(out) == told(whole.out)
    assert [e["step"] for e in events_of(out, "StepDone")] == list(range(6))
    assert [e["status"] for e in events_of(out, "RunEnded")] == ["done"]
    assert not list(out.rglob(".writing-*"))


@forks
@pytest.mark.slow
def test_ctrl_c_saves_and_exits_and_the_run_goes_on_from_there(build, pocket_toml, tmp_path):
    whole = build("whole", "run.steps=4", "checkpoint.every=0")
    go(whole)
    out = tmp_path / "stopped"
    words = ["train", str(pocket_toml), "--resume", "--set", "run.steps=4"]
    words += ["--set", f"run.out={out}", "--set", "checkpoint.every=0"]
    child = Child(*words)
    child.wait_for_steps(out, 1)
    time.sleep(0.1)
    child.send(signal.SIGINT)
    assert child.wait() == 130
    *_, ended = events_of(out)
    assert (ended["event"], ended["status"]) == ("RunEnded", "interrupted")
    done = ended["step"]
    assert 1 <= done < 4
    assert len(events_of(out, "StepDone")) == done
    assert read_state(checkpoint_to_read(out)).step == done
    assert Child(*words).wait() == 0
    assert files(out, 4) == files(whole.out, 4) != {}
    assert told(out) == told(whole.out)


@pytest.mark.skipif(os.name != "posix", reason="needs signals and pipes")
@pytest.mark.slow
def test_neither_a_reader_who_leaves_nor_ctrl_c_ends_in_a_traceback(pocket_toml, tmp_path):
    """`rti train … | head -1`, and later Ctrl-C."""
    out = tmp_path / "run"
    words = [sys.executable, "-m", "rti", "train", str(pocket_toml), "--set", "run.steps=500",
             "--set", 'reporter.use=["console", "jsonl"]']  # fmt: skip
    with (tmp_path / "stderr").open("wb") as stderr:
        # What runs in the background of a shell is started with Ctrl-C ignored.
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=stderr,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    try:
        assert child.stdout.readline().startswith(b"run ")
        child.stdout.close()
        until = time.monotonic() + 240
        while Child.steps(out / "events.jsonl") < 3:
            assert child.poll() is None, (tmp_path / "stderr").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        assert child.wait(120) == 130
    finally:
        child.kill()
        child.wait()
    said = (tmp_path / "stderr").read_text()
    assert "the run goes on without" in said
    assert "Traceback" not in said
    assert "never awaited" not in said
    assert said.endswith("rti: interrupted\n")
    assert events_of(out)[-1]["status"] == "interrupted"


def test_an_interrupt_in_the_middle_of_an_update_saves_nothing_half_done(build):
    """As a second Ctrl-C does, which Python raises wherever it is."""
    run = build("run", "run.steps=3")
    real, calls = run.trainer.step, []

    def interrupted(batch):
        calls.append(batch)
        if len(calls) == 1:
            return real(batch)
        with torch.no_grad():
            next(iter(run.trainer.weights().values())).add_(1)
        raise KeyboardInterrupt

    run.trainer = Wrapped(run.trainer, step=interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(run)
    assert events_of(run.out, "RunEnded")[0]["status"] == "interrupted"
    saved = read_state(checkpoint_to_read(run.out))
    assert saved.policy_version == 1
    go(build("run", "run.steps=3"), resume=True)
    go(build("straight", "run.steps=3"))
    assert files(run.out, 3) == files(build("straight").out, 3)


def test_exit_codes_of_the_command(pocket_toml, capsys):
    words = [
        "train",
        str(pocket_toml),
        "--set",
        "run.steps=1",
        "--set",
        "rollout.families={A1 = 1}",
    ]
    assert main(words) == 0
    assert main(words) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main([*words, "--resume", "--set", "gate.delta=1"]) == 2
    assert "[gate] differs" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0


def test_a_state_that_was_never_saved_begins_at_0():
    assert State() == State(0, 0, 0, 0.0, 0.0, -1, 1)


# --- faults ---------------------------------------------------------------------------------


@define
class Faulty:
    """A real policy behind a server that is down from its `after`-th sample on."""

    inner: Any
    after: int
    calls: list[str] = field(factory=list)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def sample(self, *arguments):
        self.calls.append("sample")
        if self.calls.count("sample") > self.after:
            raise InfrastructureError("http://127.0.0.1:9 refused the connection.")
        return await self.inner.sample(*arguments)

    async def load(self, *arguments):
        self.calls.append("load")
        await self.inner.load(*arguments)

    async def sleep(self):
        self.calls.append("sleep")

    async def close(self):
        self.calls.append("close")


def test_a_dead_server_ends_the_run_with_a_checkpoint_and_loses_no_step(build):
    overrides = ("run.steps=3", "checkpoint.every=0", "rollout.retries=0")
    whole = build("whole", *overrides)
    go(whole)
    cut = build("cut", *overrides)
    first = Faulty(cut.policy, 10**9)
    cut.actor.policy = first
    cut.policy = first

    class Counts:
        def report(self, event):
            if type(event).__name__ == "StepDone" and event.step == 1:
                first.after = first.calls.count("sample")  # down from step 2 on

        def close(self): ...

    cut.reporters = [*cut.reporters, Counts()]
    with pytest.raises(RunError, match=r"Every rollout of step 2 was dropped.*refused") as caught:
        go(cut)
    assert "--resume" in str(caught.value)
    assert read_state(checkpoint_to_read(cut.out)).step == 2
    assert [e["step"] for e in events_of(cut.out, "StepDone")] == [0, 1]
    go(build("cut", *overrides), resume=True)
    assert files(cut.out, 3) == files(whole.out, 3)
    assert told(cut.out) == told(whole.out)


def test_the_policy_sleeps_while_the_trainer_works(build):
    run = build("run", "run.steps=2")
    policy = Faulty(run.policy, 10**9)
    run.actor.policy = run.policy = policy
    step = run.trainer.step

    class Trainer:
        def __getattr__(self, name):
            return getattr(inner, name)

        def step(self, batch):
            policy.calls.append("step")
            return step(batch)

    inner, run.trainer = run.trainer, Trainer()
    go(run)
    order = [c for c in policy.calls if c != "sample"]
    assert order == ["load", *["sleep", "step", "load"] * 2]
    asyncio.run(run.close())
    assert policy.calls[-1] == "close"


def test_training_from_the_command_line_closes_what_it_opened(pocket_toml, tmp_path, monkeypatch):
    from rti_hf.policy import HfPolicy

    closed = []

    async def close(self):
        closed.append(self.version)

    monkeypatch.setattr(HfPolicy, "close", close, raising=False)
    for command in ("train", "intervene", "eval"):
        overrides = ["--set", f"run.out={tmp_path / command}", "--set", "run.steps=1",
                     "--set", "eval.tasks=1", "--set", "eval.trials=1"]  # fmt: skip
        assert main([command, str(pocket_toml), *overrides]) == 0
    assert len(closed) == 3
    bad = ["--set", "eval.families=['gone']", "--set", f"run.out={tmp_path / 'bad'}"]
    assert main(["eval", str(pocket_toml), *bad]) == 2
    assert len(closed) == 4


def test_a_budget_may_be_raised_and_a_policy_served_elsewhere_on_resuming(build):
    go(build("run", "run.steps=1", "teacher.max_requests=5"))
    go(build("run", "run.steps=2", "teacher.max_requests=9", "teacher.timeout_s=5"), resume=True)
    go(build("run", "run.steps=2", "policy.cache_mb=99"), resume=True)
    with pytest.raises(ConfigError, match=r"\[teacher\] differs"):
        go(build("run", "run.steps=3", "teacher.model=other"), resume=True)
