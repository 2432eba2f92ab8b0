"""The reporters: a log that survives kills, and lines that people read."""

from __future__ import annotations

import gc
import io
import json
import math
import tracemalloc
from types import SimpleNamespace

import pytest

from rti import Reporter
from rti.events import CheckpointSaved, Evaluated, RunEnded, RunStarted, StepDone, TurnRepaired
from rti_reporters import console as console_module
from rti_reporters.console import ConsoleReporter
from rti_reporters.jsonl import JsonlReporter

METRICS = {
    "pass@1": 0.25, "groups": 4.0, "groups_all_failed": 3.0, "groups_fired": 0.0, "loss": -0.5,
    "funnel/candidates": 12.0, "funnel/flagged": 10.0, "funnel/corrected": 9.0,
    "funnel/verified": 5.0, "funnel/admitted": 4.0, "funnel/trained": 2.0,
}  # fmt: skip


def step(number, words="2 of 4 groups give signal.", **metrics):
    return StepDone(number, number + 1, {**METRICS, **metrics}, words)


def repaired(number, **fields):
    return TurnRepaired(number, "AH-1", "AH", 0, 0, 1, "gated", "too odd", **fields)


def a_run(first=0, last=4, steps=4):
    yield RunStarted("runs/x", steps, first, 0, {"torch": "2"}, {"trigger": "all-failed"})
    if first == 0:
        yield Evaluated(0, 0, {"pass@1": 0.5})
    for number in range(first, last):
        yield repaired(number)
        yield step(number)
        if (number + 1) % 2 == 0:
            yield Evaluated(number + 1, number + 1, {"pass@1": 0.5})
            yield CheckpointSaved(number + 1, f"step-{number + 1:06d}")


# --- events.jsonl ---------------------------------------------------------------------------


@pytest.fixture
def jsonl(tmp_path):
    def make():
        reporter = JsonlReporter()
        reporter.bind(SimpleNamespace(out=tmp_path / "run"))
        return reporter

    return make


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run" / "events.jsonl"


def lines(log):
    text = log.read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.split("\n")[:-1]]


def tell(reporter, events):
    for event in events:
        reporter.report(event)


def test_every_event_is_a_line_with_all_its_fields(jsonl, log):
    reporter = jsonl()
    assert isinstance(reporter, Reporter)
    events = [
        *a_run(last=1),
        repaired(1, tokens=["东", "涌", "\u2028"], weights=(1.0, 0.8), history="line\nbreak"),
        RunEnded(4, "done", 1.5, 99.0),
    ]
    tell(reporter, events)
    reporter.close()
    found = lines(log)
    assert [e["event"] for e in found] == [type(e).__name__ for e in events]
    for record, event in zip(found, events, strict=True):
        assert set(record) == {"event", "time", *(a.name for a in event.__attrs_attrs__)}
        assert record["time"].endswith("Z")
    assert found[2]["stage"] == "gated"
    assert found[3]["metrics"] == METRICS
    assert (found[4]["tokens"], found[4]["weights"]) == (["东", "涌", "\u2028"], [1.0, 0.8])
    assert found[4]["history"] == "line\nbreak"
    assert "东" in log.read_text(encoding="utf-8")


def test_each_line_is_there_at_once(jsonl, log):
    reporter = jsonl()
    reporter.report(step(0))
    assert len(lines(log)) == 1  # a kill now loses nothing


def test_numbers_that_json_does_not_have_are_null(jsonl, log):
    reporter = jsonl()
    reporter.report(repaired(0, perplexity=math.inf, threshold=math.inf, weights=(math.nan, 1.0)))
    reporter.report(step(0, loss=-math.inf))
    reporter.close()
    look, done = lines(log)
    assert (look["perplexity"], look["threshold"], look["weights"]) == (None, None, [None, 1.0])
    assert done["metrics"]["loss"] is None


def test_half_a_surrogate_pair_is_kept_and_ends_no_run(jsonl, log):
    reporter = jsonl()
    reporter.report(repaired(0, diagnosis="no reading \udce9", after="\ud83d"))
    reporter.close()
    (look,) = lines(log)
    assert (look["diagnosis"], look["after"]) == ("no reading \udce9", "\ud83d")


def test_closed_and_opened_again_it_appends(jsonl, log):
    for number in range(2):
        reporter = jsonl()
        reporter.report(step(number))
        reporter.close()
        reporter.close()
    assert [e["step"] for e in lines(log)] == [0, 1]


@pytest.mark.parametrize("kept", [2, 4])
def test_rewinding_drops_what_came_after_the_checkpoint(jsonl, log, kept):
    reporter = jsonl()
    tell(reporter, a_run())
    reporter.close()
    whole = lines(log)
    again = jsonl()
    again.rewind(kept)
    stays = ("Evaluated", "CheckpointSaved")
    assert lines(log) == [
        e for e in whole if e["step"] < kept or (e["step"] == kept and e["event"] in stays)
    ]
    tell(again, a_run(kept))
    again.close()
    found = lines(log)
    assert [e["step"] for e in found if e["event"] == "StepDone"] == [0, 1, 2, 3]
    assert [e["step"] for e in found if e["event"] == "TurnRepaired"] == [0, 1, 2, 3]
    assert [e["step"] for e in found if e["event"] == "Evaluated"] == [0, 2, 4]


def test_rewinding_to_before_the_beginning_drops_everything(jsonl, log):
    reporter = jsonl()
    reporter.rewind(0)  # there is nothing yet
    assert not log.exists()
    tell(reporter, a_run(last=1))
    reporter.close()
    jsonl().rewind(-1)
    assert lines(log) == []


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_that_a_kill_cut_short_is_dropped(jsonl, log, cut):
    reporter = jsonl()
    tell(reporter, [step(0), step(1, "东涌" * 10)])
    reporter.close()
    data = log.read_bytes()
    log.write_bytes(data[:-cut])
    jsonl().rewind(9)
    # Without its newline alone the line is whole.
    assert [e["step"] for e in lines(log)] == ([0, 1] if cut == 1 else [0])


def test_a_kill_in_the_middle_of_a_letter_is_survived(jsonl, log):
    reporter = jsonl()
    tell(reporter, [step(0), step(1, "东涌")])
    reporter.close()
    data = log.read_bytes()
    log.write_bytes(data[: data.rindex("涌".encode()) + 1])
    jsonl().rewind(9)
    assert [e["step"] for e in lines(log)] == [0]


def test_rewinding_keeps_lines_with_odd_line_breaks(jsonl, log):
    reporter = jsonl()
    tell(reporter, [repaired(0, history="a\u2028b\u0085c\x0bd"), step(0)])
    reporter.close()
    before = lines(log)
    jsonl().rewind(5)
    assert lines(log) == before
    assert before[0]["history"] == "a\u2028b\u0085c\x0bd"


def test_rewinding_holds_one_line_at_a_time(jsonl, log):
    reporter = jsonl()
    for number in range(40):
        tell(reporter, [repaired(number, history="x" * 500_000), step(number)])
    reporter.close()
    gc.collect()
    tracemalloc.start()
    try:
        jsonl().rewind(30)
        console = ConsoleReporter()
        console.bind(SimpleNamespace(out=log.parent))
        console.rewind(30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5e6 < log.stat().st_size
    assert [e["step"] for e in lines(log) if e["event"] == "StepDone"] == list(range(30))
    assert [path.name for path in log.parent.iterdir()] == ["events.jsonl"]


@pytest.mark.parametrize("odd", ["7", "null", "[1]", '{"step": "x"}', '{"event": "StepDone"}'])
def test_rewinding_leaves_out_what_is_no_event(jsonl, log, odd):
    reporter = jsonl()
    tell(reporter, [step(0)])
    reporter.close()
    with log.open("a") as file:
        file.write(odd + "\n")
    jsonl().rewind(5)
    assert [e["step"] for e in lines(log)] == [0]


# --- the console ----------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = SimpleNamespace(at=0.0)
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now.at)
    return now


def shown(capsys, reporter, *events):
    tell(reporter, events)
    return capsys.readouterr().out


def test_the_lines_of_a_run(capsys, clock):
    reporter = ConsoleReporter()
    assert isinstance(reporter, Reporter)
    out = shown(capsys, reporter, RunStarted("runs/x", 200, 0, 7))
    assert out == "run runs/x: 200 steps from the start, seed 7\n"
    assert shown(capsys, ConsoleReporter(), RunStarted("runs/x", 9, 4, 7)) == (
        "run runs/x: 9 steps from step 4, seed 7\n"
    )
    clock.at = 2.0
    assert shown(capsys, reporter, step(0)) == (
        "step 1/200  pass@1 0.25  all failed 3/4  2 of 4 groups give signal.  ETA ?\n"
    )
    clock.at = 5.0
    line = shown(capsys, reporter, step(1, groups_fired=3.0, mean_ppl=12.34))
    assert (
        "repair 12 candidates → 10 flagged → 9 corrected → 5 verified → 4 admitted → 2 trained"
        in line
    )
    assert "PPL 12.3" in line
    assert line.endswith("ETA 9 min 54 s\n")
    assert shown(capsys, reporter, repaired(1)) == ""
    line = shown(capsys, reporter, Evaluated(2, 2, {"pass@1": 0.5, "turns": 3.0, "probe_ppl": 9.0}))
    assert line == "eval after step 2: pass@1 0.500  probe_ppl 9.000\n"
    assert (
        shown(capsys, reporter, CheckpointSaved(2, "c/step-000002")) == "checkpoint c/step-000002\n"
    )
    end = RunEnded(2, "failed", 75.4, 12345.0, "no space left")
    assert shown(capsys, reporter, end) == (
        "failed after 2 steps, 75 s, 12,345 tokens (no space left)\n"
    )
    reporter.close()


def test_a_family_of_which_nothing_was_measured_is_told_as_that(capsys, clock):
    families = {"AH": {"pass@1": 0.5, "tasks": 2.0}, "BH": {"tasks": 2.0}}
    tell(ConsoleReporter(), [Evaluated(2, 2, {"pass@1": 0.5}, families)])
    assert "(pass@1 by family: AH 0.50, BH –)" in capsys.readouterr().out


def test_a_token_budget_is_told(capsys, clock):
    out = shown(capsys, ConsoleReporter(), RunStarted("x", 9, 0, 7, token_budget=1_500_000))
    assert out == "run x: 9 steps or 1,500,000 tokens from the start, seed 7\n"


def test_eta_is_the_pace_of_steps_and_of_nothing_before_them(capsys, clock):
    reporter = ConsoleReporter()
    shown(capsys, reporter, RunStarted("x", 1002, 0, 0))
    clock.at = 5000.0  # a server starts, a long evaluation
    shown(capsys, reporter, Evaluated(0, 0, {"pass@1": 0.5}))
    assert "ETA ?" in shown(capsys, reporter, step(0))
    clock.at = 5036.0
    assert "ETA 10.0 h" in shown(capsys, reporter, step(1))
    assert "ETA 0 s" in shown(capsys, reporter, step(1001))
    assert "ETA 0 s" in shown(capsys, reporter, step(1002))
    alone = ConsoleReporter()
    shown(capsys, alone, RunStarted("x", 1, 0, 0))
    assert "ETA 0 s" in shown(capsys, alone, step(0))


def test_every_so_many_steps_or_quietly(capsys, clock):
    some = ConsoleReporter(every=2)
    out = shown(capsys, some, *a_run())
    assert [line.split()[1] for line in out.splitlines() if line.startswith("step")] == [
        "2/4",
        "4/4",
    ]
    quiet = shown(capsys, ConsoleReporter(quiet=True), *a_run(), RunEnded(4, "done", 1.0, 2.0))
    kinds = [line.split()[0] for line in quiet.splitlines()]
    assert kinds == ["run", "eval", "eval", "eval", "done"]


def test_text_is_shown_as_it_is(capsys, clock):
    reporter = ConsoleReporter()
    shown(capsys, reporter, RunStarted("x", 4, 0, 0))
    assert "[bold]no[/bold] [rollout] :smile:" in shown(
        capsys, reporter, step(0, "[bold]no[/bold] [rollout] :smile:")
    )
    assert shown(capsys, reporter, SimpleNamespace(step=1)) == ""  # an event it does not know


def shares(shares, first=0):
    return [step(first + n, made_up=s, made_up_values=40.0) for n, s in enumerate(shares)]


def warned(out):
    return [line for line in out.splitlines() if line.startswith("warning:")]


def test_a_climbing_share_of_made_up_ids_is_told_once(capsys, clock):
    reporter = ConsoleReporter(quiet=True)
    out = shown(capsys, reporter, RunStarted("x", 30, 0, 0), *shares([0.0] * 15 + [0.6] * 15))
    [warning] = warned(out)
    assert "look at [verifier] and [veto]" in warning
    level = ConsoleReporter(quiet=True)
    assert shown(capsys, level, *shares([0.3] * 30)) == ""


@pytest.mark.parametrize("console_first", [True, False])
def test_a_climb_that_began_before_a_resume_is_seen(capsys, clock, jsonl, log, console_first):
    """Whichever reporter takes the killed run's steps back first."""
    killed = jsonl()
    tell(killed, [*a_run(0, 1), *shares([0.0] * 14, 1), *shares([0.9] * 10, 15)])
    killed.close()
    with log.open("ab") as file:
        file.write(b'{"event": "StepDone", "step": 3, "metrics": 7}\nnull\n{"step": "StepDone"}\n')
        file.write(b'{"event": "StepDone", "step": 25, "met')
    console = ConsoleReporter(quiet=True)
    console.bind(SimpleNamespace(out=log.parent))
    order = [console, jsonl()] if console_first else [jsonl(), console]
    for reporter in order:
        reporter.rewind(15)
    assert warned(shown(capsys, console, *shares([0.0] * 3, 15))) == []  # what came after is gone
    [warning] = warned(shown(capsys, console, *shares([0.6] * 10, 18)))
    assert f"`rti report {log.parent}`" in warning
    anew = ConsoleReporter(quiet=True)  # as with a run that is not resumed
    anew.bind(SimpleNamespace(out=log.parent))
    anew.rewind(-1)
    assert warned(shown(capsys, anew, *shares([0.6] * 20))) == []


def test_without_a_log_a_resumed_run_is_watched_from_there(capsys, clock, tmp_path):
    console = ConsoleReporter(quiet=True)
    console.bind(SimpleNamespace(out=tmp_path / "run"))
    console.rewind(5)
    assert warned(shown(capsys, console, *shares([0.0] * 15 + [0.6] * 15, 5)))


def test_letters_that_the_output_does_not_have_end_no_run(monkeypatch, clock):
    import sys

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    reporter = ConsoleReporter()
    tell(reporter, [RunStarted("x", 9, 0, 0), step(0, "东涌 → k1", groups_fired=1.0)])
    assert b"?? ? k1" in raw.getvalue()


class Closed(io.StringIO):
    """An output that takes so many lines."""

    def __init__(self, error, lines):
        super().__init__()
        self.error, self.lines = error, lines

    def write(self, text):
        if not self.lines:
            raise self.error
        self.lines -= min(self.lines, text.count("\n"))
        return len(text)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("lines", [0, 1, 3])
@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), OSError(5, "I/O"), ValueError("closed file")]
)
def test_an_output_that_is_closed_ends_no_run(monkeypatch, clock, error, lines, live):
    import sys

    import rich.console

    file, real, stdout = Closed(error, lines), rich.console.Console, sys.stdout
    monkeypatch.setattr(
        rich.console,
        "Console",
        lambda **o: real(file=file, force_terminal=live, width=80, _environ={}, **o),
    )
    reporter = ConsoleReporter()
    with pytest.warns(UserWarning, match="the run goes on without") as said:
        tell(reporter, [*a_run(), RunEnded(4, "done", 1.0, 2.0)])
    reporter.close()
    assert len(said) == 1
    assert sys.stdout is stdout  # a live bar takes its place while it is shown


# --- on a terminal ----------------------------------------------------------------------------


def terminal(monkeypatch, width=100, **environ):
    """A console that believes itself a terminal, and what is written to it."""
    import rich.console

    file, real = io.StringIO(), rich.console.Console

    def made(**options):
        return real(file=file, force_terminal=True, width=width, _environ=environ, **options)

    monkeypatch.setattr(rich.console, "Console", made)
    return file


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_live_bar_shows_the_step_and_lines_stay_above_it(monkeypatch, clock, width):
    file = terminal(monkeypatch, width)
    reporter = ConsoleReporter()
    reporter.report(RunStarted("runs/x", 4, 0, 7))
    clock.at = 2.0
    reporter.report(step(0, groups_with_signal=2.0))
    assert "1/4" in file.getvalue()
    assert "2 of 4 groups give signal" not in file.getvalue()
    reporter.report(step(1, "No signal: [bold]3[/bold] of 4 groups all failed."))
    reporter.report(
        step(2, "1 of 4 groups gives signal. 2 rollouts dropped.", groups_with_signal=1.0)
    )
    reporter.report(Evaluated(3, 3, {"pass@1": 0.5}))
    reporter.report(RunEnded(4, "done", 1.5, 99.0))
    text = file.getvalue()
    assert "step 2: No signal: [bold]3[/bold] of 4" in text
    assert "2 rollouts dropped" in text
    assert "eval after step 3" in text
    assert text.rstrip().endswith("done after 4 steps, 2 s, 99 tokens")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back


def test_closing_early_gives_the_terminal_back(monkeypatch, clock):
    file = terminal(monkeypatch)
    reporter = ConsoleReporter()
    reporter.report(RunStarted("runs/x", 4, 0, 7))
    reporter.close()
    reporter.close()
    assert file.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize("width", [1, 2, 5, 12])
def test_a_narrow_terminal_ends_no_run(monkeypatch, clock, width):
    file = terminal(monkeypatch, width)
    tell(ConsoleReporter(), [*a_run(), RunEnded(4, "done", 1.0, 2.0)])
    assert "done" in file.getvalue().replace("\n", "")


@pytest.mark.parametrize("name", ["dumb", "unknown"])
def test_a_terminal_that_cannot_move_its_cursor_is_given_lines(monkeypatch, clock, name):
    file = terminal(monkeypatch, TERM=name)
    tell(ConsoleReporter(), [RunStarted("x", 4, 0, 0), step(0, groups_with_signal=2.0)])
    assert "step 1/4" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_in_a_real_terminal(pocket_toml):
    """Through a pseudo-terminal, as a person would run it."""
    import os
    import pty
    import sys

    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(OMP_NUM_THREADS="1", TERM="xterm", COLUMNS="120")
        words = ["-m", "rti", "train", str(pocket_toml), "--set", "run.steps=2"]
        words += ["--set", 'reporter.use=["console"]']
        os.execv(sys.executable, [sys.executable, *words])
    seen = b""
    while True:
        try:
            part = os.read(fd, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    text = seen.decode()
    assert "2/2" in text
    assert "done after 2 steps" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
