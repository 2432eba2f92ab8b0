"""`rti compare`: real small runs, killed, continued, broken; and what becomes of their numbers."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from fakes import POCKET

pytest.importorskip("torch", reason="needs the extra hf")

from rti.cli import main
from rti.compare import carry_out, plan, read_spec
from rti.compare.cells import Cell
from rti.compare.output import markdown
from rti.compare.summary import record
from rti.registry import Registry

SEEDS = (1, 2)
SMALL = """
[compare]
base = "base.toml"
seeds = [1, 2]
out = "{out}"
baseline = "grpo"
groups = {{ hard = ["AH", "BH"], easy = ["A1", "A3"] }}
set = ["run.steps=2", "eval.every=2", "eval.trials=2", "environment.test_tasks=1",
       "eval.families=['AH', 'BH', 'A1', 'A3']", "rollout.families={{AH = 1, A1 = 1}}",
       "checkpoint.every=1"]
{more}
[arms.grpo]
set = ["trigger.use=never"]

[arms.equal]
set = ["trigger.use=never"]
tokens_of = "rti"
seeds = [1]

[arms.rti]
"""

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "200")


def small(folder: Path, out: str = "out", more: str = "", text: str = SMALL) -> Path:
    (folder / "base.toml").write_text(POCKET, encoding="utf-8")
    file = folder / "small.toml"
    file.write_text(text.format(out=folder / out, more=more), encoding="utf-8")
    return file


def read(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    return found


def lasting(out: Path) -> Any:
    """The record without what may differ between two machines' clocks and places."""
    text = (out / "compare.json").read_text(encoding="utf-8").replace(str(out), "OUT")

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k != "seconds"}
        return [strip(v) for v in value] if isinstance(value, list) else value

    return strip(json.loads(text))


def present(out: Path) -> dict[Path, int]:
    """When each file of all runs was written."""
    return {p: p.stat().st_mtime_ns for p in out.glob("*-*/**/*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unbroken compare."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["compare", str(small(folder)), "--save", str(folder / "saved")]) == 0
    return folder


# --- what comes out -----------------------------------------------------------------------------


def test_every_cell_is_a_run_of_its_own_and_enters_the_record(whole: Path) -> None:
    found = read(whole / "out")
    assert list(found["cells"]) == ["grpo-1", "rti-1", "equal-1", "grpo-2", "rti-2"]
    for name, cell in found["cells"].items():
        assert (whole / "out" / name / "events.jsonl").is_file()
        assert [step for step, _ in cell["curve"]][:2] == [0, 2]
        assert cell["metrics"]["pass@1"] == cell["curve"][-1][1]
    assert found["arms"]["rti"]["seeds"] == [1, 2]
    assert found["arms"]["equal"]["planned"] == [1]
    assert found["paired"].keys() == {"equal-grpo", "rti-grpo"}
    assert found["config"]["resolved"]["grpo"]["trigger"]["use"] == "never"
    assert found["versions"]["rti-rl"]


def test_groups_of_families_weigh_their_tasks(whole: Path) -> None:
    cell = read(whole / "out")["cells"]["rti-1"]
    lines = (whole / "out" / "rti-1" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    last = [e for e in map(json.loads, lines) if e["event"] == "Evaluated"][-1]
    families = last["families"]
    for group, names in (("", ("AH", "BH")), ("easy/", ("A1", "A3"))):
        mean = sum(families[n]["pass@1"] for n in names) / 2
        assert cell["metrics"][f"{group}pass@1"] == pytest.approx(mean)
    assert cell["metrics"]["all/pass@1"] == last["metrics"]["pass@1"]


def test_equal_tokens_are_those_of_the_other_arm(whole: Path) -> None:
    cells = read(whole / "out")["cells"]
    budget, spent = cells["rti-1"]["tokens"], cells["equal-1"]["tokens"]
    assert spent >= budget
    assert cells["equal-1"]["steps"] > 2 or spent < 2 * budget


def test_json_csv_and_markdown_say_the_same(whole: Path) -> None:
    found = read(whole / "out")
    rows = list(csv.DictReader((whole / "out" / "compare.csv").open(encoding="utf-8")))
    assert [f"{r['arm']}-{r['seed']}" for r in rows] == list(found["cells"])
    for row in rows:
        cell = found["cells"][f"{row['arm']}-{row['seed']}"]
        assert float(row["pass@1"]) == cell["metrics"]["pass@1"]
    text = (whole / "out" / "compare.md").read_text(encoding="utf-8")
    assert f"| rti | 2 | {found['arms']['rti']['pass@1']['mean']:.3f} ± " in text
    assert "Student's t" in text
    saved = whole / "saved" / "small.json"
    assert json.loads(saved.read_text(encoding="utf-8")) == found


def test_finished_runs_are_not_run_again(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = present(whole / "out")
    assert main(["compare", str(whole / "small.toml"), "--dry-run"]) == 0
    assert "5 of 5 runs are done." in capsys.readouterr().out
    assert main(["compare", str(whole / "small.toml")]) == 0
    assert present(whole / "out") == before
    assert f"rti report {whole / 'out'}\n" in capsys.readouterr().out


def test_a_killed_compare_goes_on_and_ends_as_an_unbroken_one(whole: Path, tmp_path: Path) -> None:
    file, out = small(tmp_path), tmp_path / "out"
    for name in ("grpo-1", "rti-1", "grpo-2"):  # done before; equal-1 and rti-2 are left
        shutil.copytree(whole / "out" / name, out / name)
    command = [sys.executable, "-m", "rti", "compare", str(file), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 900  # machines are shared
    try:
        while not said(out / "rti-2", "StepDone"):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert not said(out / "rti-2", "RunEnded")
    assert list(read(out)["cells"]) == ["grpo-1", "rti-1", "equal-1", "grpo-2"]
    finished = {p: at for p, at in present(out).items() if "rti-2" not in p.parts}
    assert main(["compare", str(file)]) == 0
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    assert lasting(out) == lasting(whole / "out") | {"config": lasting(out)["config"]}


def said(run: Path, event: str) -> bool:
    log = run / "events.jsonl"
    return log.is_file() and f'"event": "{event}"' in log.read_text(encoding="utf-8")


# --- what goes wrong ----------------------------------------------------------------------------


def test_another_config_than_the_stored_runs_is_an_error(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (whole / "small.toml").read_text(encoding="utf-8")
    other = whole / "other.toml"
    other.write_text(text.replace("[arms.rti]", '[arms.rti]\nset = ["gate.delta=3"]'))
    assert main(["compare", str(other)]) == 2
    said = capsys.readouterr().err
    assert "rti-1 holds a run of another config: [gate] was" in said
    assert "--rerun rti" in said
    assert main(["compare", str(other), "--rerun", "rti", "--dry-run"]) == 0
    assert "2 of 5 runs are done." in capsys.readouterr().out  # equal spends the tokens of rti


BAD = [
    ('[compare]\nsede = [1]\n[arms.a]\n', "[compare] has no 'sede'", "Did you mean 'seeds'?"),
    ('[compare]\nseeds = [1, 1]\n[arms.a]\n', "[compare] seeds = [1, 1]", "different"),
    ('[compare]\nseeds = []\n[arms.a]\n', "[compare] seeds = []", "whole numbers"),
    ("[arms.a]\n", "[compare]: must be a table", ""),
    ("{head}[arms.b]\n", "[compare] baseline: there is no 'a'", "There are: b"),
    ("{head}[arms.a]\nrecipee = 'x'\n", "[arms.a] has no 'recipee'", "Did you mean 'recipe'?"),
    ("{head}[arms.a]\ntokens_of = 'b'\n", "[arms.a] tokens_of: there is no 'b'", ""),
    ("{head}[arms.a]\nservices = ['t']\n", "[arms.a] services: there is no 't'", ""),
    ("{head}[arms.a]\nset = ['gate.delat=3']\n", "[arms.a]", "delat"),
    ("{head}[arms.a]\nset = 'x'\n", "[arms.a] set = 'x'", "list of texts"),
    ("{head}[arms.a]\nrecipe = 'none.toml'\n", "[arms.a]", "none.toml"),
    ("{head}[arms.a]\n[arms.'../x']\n", "'../x' names a folder", ""),
    ("{head}[services.t]\ncommand = ['x']\nready = 'ftp://x'\n[arms.a]\n", "ready = 'ftp://x'", ""),
    ("{head}[arms.a]\n[arms.prepare-1]\n", "[arms.prepare-1]", "Rename it"),
    ("{head}groups = {all = ['AH']}\n[arms.a]\n", "[compare] groups.all", "Rename it"),
    ("{head}groups = {'[/x]' = ['AH']}\n[arms.a]\n", "'[/x]' names a folder or a column", ""),
    ("{head}groups = {hard = ['AH', 'BHX']}\n"
     "set = ['eval.every=1', \"eval.families=['AH', 'BH']\"]\n[arms.a]\n",
     "[compare] groups.hard: the arm 'a' evaluates no family 'BHX'", "Did you mean 'BH'?"),
    ("{head}pairs = [['a-b', 'c'], ['a', 'b-c']]\n[arms.a]\n[arms.a-b]\n[arms.b-c]\n[arms.c]\n",
     "are both called 'a-b-c'", "Rename an arm"),
    ("{head}set = ['eval.every=0']\n[arms.a]\n", "[arms.a] [eval] every = 0", "eval.every=20"),
    ("{head}groups = {hard = ['AHX']}\nset = ['eval.every=1']\n[arms.a]\n",
     "[compare] groups.hard: the arm 'a' evaluates no family 'AHX'", "Did you mean 'AH'?"),
    ("{head}[arms.a]\nset = ['corrector.use=sefl']\n", "[arms.a] [corrector]", "'self'"),
    ("{head}set = ['reporter.use=[\"console\"]']\n[arms.a]\n", "[arms.a] [reporter]", "'jsonl'"),
    ("not toml", "no TOML", ""),
]  # fmt: skip
HEAD = '[compare]\nbase = "base.toml"\nseeds = [1]\nout = "{out}"\nbaseline = "a"\n'


@pytest.mark.parametrize(("text", "where", "way_out"), BAD)
def test_bad_files_are_told_before_anything_runs(
    text: str, where: str, way_out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "base.toml").write_text(POCKET, encoding="utf-8")
    file = tmp_path / "bad.toml"
    file.write_text(text.replace("{head}", HEAD.replace("{out}", str(tmp_path / "out"))))
    assert main(["compare", str(file)]) == 2
    said = capsys.readouterr().err
    assert where in said
    assert way_out in said
    assert not (tmp_path / "out").exists()


def test_plug_ins_of_the_command_line_reach_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from rti import hookimpl\nfrom rti_grpo import PerplexityGate\n"
        "@hookimpl\ndef rti_gates():\n    return {'mine': PerplexityGate}\n"
    )
    file = tiny(tmp_path, 'prepare = [["plugins", "gate", "--json"]]', 'set = ["gate.use=mine"]\n')
    assert main(["compare", str(file)]) == 2
    assert "--plugin FILE" in capsys.readouterr().err
    assert main(["--plugin", str(plugin), "compare", str(file)]) == 0
    assert '"mine"' in (tmp_path / "out" / "prepare-1.log").read_text(encoding="utf-8")
    assert main(["--plugin", str(plugin), "compare", str(file), "--dry-run"]) == 0
    assert "1 of 1 runs are done." in capsys.readouterr().out


def test_a_folder_that_is_a_file_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny(tmp_path)
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    for words in ([], ["--dry-run"]):
        assert main(["compare", str(file), *words]) == 2
        assert "name a folder; that is a file" in capsys.readouterr().err
    assert main(["train", str(tmp_path / "base.toml"), "--set", f"run.out={tmp_path}/out"]) == 2
    assert "Name a folder that can be written into" in capsys.readouterr().err


def test_a_place_to_save_that_is_a_file_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny(tmp_path)
    assert main(["compare", str(file), "--save", str(file)]) == 2
    assert "--save" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "nowhere.toml"]) == 2
    assert "nowhere.toml: No such file" in capsys.readouterr().err


TINY = """
[compare]
base = "base.toml"
seeds = [1]
out = "{out}"
baseline = "good"
set = ["run.steps=1", "eval.every=1", "eval.trials=1", "environment.test_tasks=1",
       "eval.families=['AH']", "rollout.families={{AH = 1}}", "rollout.group_size=2"]
{more}
[arms.good]
"""
FAILING = """
[arms.broken]
set = ["model.path=nowhere"]

[arms.after]
tokens_of = "broken"

[arms.served]
services = ["never"]

[services.never]
command = ["plugins"]
ready = "http://127.0.0.1:{port}/"
"""


def tiny(folder: Path, more: str = "", arms: str = "") -> Path:
    """One step of one small group: for what goes on around runs. `arms` stands behind `good`."""
    file = small(folder, text=TINY, more=more)
    file.write_text(file.read_text(encoding="utf-8") + arms, encoding="utf-8")
    return file


def test_what_fails_is_named_and_the_rest_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(tiny(tmp_path, arms=FAILING))]) == 1
    said = capsys.readouterr().err
    assert "3 of 4 failed" in said
    assert "broken-1 ended with exit code 2: see" in said
    assert "[model] path = 'nowhere'" in said
    assert "after-1 not begun: broken-1 failed" in said
    assert "[services.never] ended with exit code 0 before it answered" in said
    assert list(read(tmp_path / "out")["cells"]) == ["good-1"]
    text = (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    assert "| broken | 0 of 1 |" in text


def test_a_service_that_never_answers_is_given_up_and_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = """
services = ["never"]

[services.never]
command = ["pocket", "serve"]
ready = "http://127.0.0.1:{port}/"
timeout_s = 0.5
"""
    assert main(["compare", str(tiny(tmp_path, arms=arms))]) == 1
    assert "did not answer at http://127.0.0.1:" in capsys.readouterr().err
    assert not list(processes("pocket", "serve"))


def test_a_service_serves_while_arms_need_it_and_no_longer(tmp_path: Path) -> None:
    arms = """
services = ["desk"]
set = ["corrector.use=teacher", "teacher.base_url=http://127.0.0.1:{desk.port}/v1"]

[services.desk]
command = ["pocket", "serve", "--port", "{port}"]
ready = "http://127.0.0.1:{port}/v1/models"
timeout_s = 900  # machines are shared
"""
    file = tiny(tmp_path, arms=arms)
    assert main(["compare", str(file)]) == 0
    log = (tmp_path / "out" / "service-desk.log").read_text(encoding="utf-8")
    assert "serving" in log
    resolved = (tmp_path / "out" / "good-1" / "config.toml").read_text(encoding="utf-8")
    assert "desk.port" not in resolved
    assert not list(processes("pocket", "serve"))
    assert main(["compare", str(file)]) == 0  # another port next time: still the same runs


def processes(*words: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "rti" in line and all(word in line for word in words) and parent(folder) == os.getpid():
            found.append(int(folder.name))
    return found


def parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_preparations_run_once_and_anew_when_they_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pocket", "warm-start", "--seed", "{seed}", "--steps", "1", "--out"]
    more = f"prepare = [{json.dumps([*words, '{out}/base-{seed}'])}]"
    file, out = tiny(tmp_path, more, 'set = ["model.path={out}/base-{seed}"]\n'), tmp_path / "out"
    made = out / "base-1"
    out.mkdir()
    made.write_text("in the way", encoding="utf-8")
    assert main(["compare", str(file)]) == 1
    said = capsys.readouterr().err
    assert "prepare-1-1 ended with exit code" in said
    assert "good-1 not begun: prepare-1-1 failed" in said
    made.unlink()
    assert main(["compare", str(file)]) == 0
    first = (made / "model.safetensors").stat().st_mtime_ns
    shutil.rmtree(out / "good-1")
    assert main(["compare", str(file)]) == 0
    assert (made / "model.safetensors").stat().st_mtime_ns == first


def test_two_compares_in_one_folder_are_refused(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl

    before = present(whole / "out")
    with (whole / "out" / "compare.lock").open("w") as file:
        file.write("123\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        for words in ([], ["--rerun", "equal"]):
            assert main(["compare", str(whole / "small.toml"), *words]) == 2
            assert "another rti compare is at work there" in capsys.readouterr().err
    assert present(whole / "out") == before
    assert (whole / "out" / "compare.lock").read_text(encoding="utf-8") == "123\n"


def test_rerun_throws_the_runs_of_one_arm_away(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(whole / "small.toml"), "--rerun", "nobody"]) == 2
    assert "there is no such arm" in capsys.readouterr().err
    before = present(whole / "out")
    assert main(["compare", str(whole / "small.toml"), "--rerun", "equal", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "to do  equal-1" in told
    assert "4 of 5 runs are done." in told
    assert present(whole / "out") == before
    assert main(["compare", str(whole / "small.toml"), "--rerun", "equal"]) == 0
    for path, at in present(whole / "out").items():
        assert (before.get(path) == at) is ("equal-1" not in path.parts)


def test_rerun_throws_away_what_spent_the_tokens_of_the_arm(
    whole: Path, capsys: pytest.CaptureFixture[str], registry: Registry
) -> None:
    file = whole / "small.toml"
    assert main(["compare", str(file), "--rerun", "rti", "--dry-run"]) == 0
    to_do = [x.split()[2] for x in capsys.readouterr().out.splitlines() if x.startswith("to do")]
    assert sorted(to_do) == ["equal-1", "rti-1", "rti-2"]
    # A kill between two removals leaves no run behind whose measure is gone.
    assert [c.arm for c in plan(read_spec(file), registry, ["rti"]).anew] == ["equal", "rti", "rti"]
    # Nor is a change of all refused for the sake of the one that was not named.
    other = whole / "longer.toml"
    text = file.read_text(encoding="utf-8").replace("run.steps=2", "run.steps=3")
    other.write_text(text, encoding="utf-8")
    assert main(["compare", str(other), "--rerun", "rti", "--rerun", "grpo", "--dry-run"]) == 0


def test_a_kill_while_runs_are_thrown_away_leaves_none_that_looks_done(
    whole: Path, tmp_path: Path
) -> None:
    file, out = small(tmp_path), tmp_path / "out"
    shutil.copytree(whole / "out", out)
    pid = os.fork()
    if pid == 0:  # at the third file that is to go
        import rti.compare.run as module

        gone: list[str] = []

        def unlink(path: Any, *_: Any, **__: Any) -> None:
            gone.append(str(path))
            if len(gone) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            remove(path, *_, **__)

        remove, module.os.unlink = os.unlink, unlink
        module.carry_out(plan(read_spec(file), Registry.load(), ["rti"]), 1, lambda _: None)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    left = [c for c in plan(read_spec(file), Registry.load()).cells if c.arm in ("rti", "equal")]
    assert any(not cell.folder.exists() for cell in left)
    for cell in left:  # whole, or not there at all
        assert cell.done == cell.folder.exists()
        assert not cell.done or (cell.folder / "checkpoints").exists()
    assert main(["compare", str(file)]) == 0
    assert lasting(out) == lasting(whole / "out") | {"config": lasting(out)["config"]}
    assert not list(out.glob(".*"))


def test_a_log_with_odd_lines_is_read_as_far_as_it_goes(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = small(tmp_path), tmp_path / "out"
    shutil.copytree(whole / "out", out)
    log = out / "rti-1" / "events.jsonl"
    log.write_bytes(b'[]\n"words"\n{}\n\xff\n' + log.read_bytes())
    assert main(["compare", str(file)]) == 0
    assert lasting(out) == lasting(whole / "out") | {"config": lasting(out)["config"]}
    with log.open("ab") as lines:
        lines.write(b"[]\n")  # something went on behind the end
    assert main(["compare", str(file), "--dry-run"]) == 0
    assert "4 of 5 runs are done." in capsys.readouterr().out
    (out / "rti-1" / "config.toml").write_bytes(b"\xff")
    assert main(["compare", str(file)]) == 2
    assert "--rerun rti" in capsys.readouterr().err


def test_a_group_that_was_not_measured_has_no_figures_and_it_is_said(
    whole: Path,
) -> None:
    spec = evolve(read_spec(whole / "small.toml"), groups={"hard": ("AH", "BHX"), "easy": ("A1",)})
    cells = plan(read_spec(whole / "small.toml"), Registry.load()).cells
    found = record(spec, cells, {})
    assert "pass@1" not in found["arms"]["rti"]
    assert found["arms"]["rti"]["easy/pass@1"]["mean"] is not None
    (note,) = found["notes"]
    assert "groups.hard names 'BHX'" in note
    assert "There are: AH, BH, A1, A3." in note
    assert note in markdown(found)


def test_a_figure_that_some_seeds_lack_says_of_how_many_it_is(whole: Path) -> None:
    found = read(whole / "out")
    for seeds in ([0.25, None], [None, 0.25]):
        found["arms"]["rti"]["pass@1"] |= {"mean": 0.25, "low": None, "high": None, "seeds": seeds}
        assert "| rti | 2 | 0.250 (1 of 2) |" in markdown(found)


def test_a_run_that_ends_without_a_word_of_it_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tiny(tmp_path)
    monkeypatch.setattr(Cell, "words", lambda *_: ["plugins"])  # ends with 0
    assert main(["compare", str(file)]) == 1
    said = capsys.readouterr().err
    assert "good-1 ended without a word of it in" in said
    assert "1 of 1 failed" in said


def test_the_next_seed_is_prepared_before_this_seed_is_run(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no core waits for a preparation while there are runs that could fill it."""
    begun: list[str] = []

    def in_order(jobs: Any, *_: Any) -> list[Any]:
        begun.extend(job.name for job in jobs)
        return []

    monkeypatch.setattr("rti.compare.run.run_jobs", in_order)
    prepare = (
        'prepare = [["pocket", "warm-start", "--seed", "{{seed}}", "--out", "{{out}}/{{seed}}"]]'
    )
    spec = read_spec(small(tmp_path, more=prepare.format()))
    carry_out(plan(spec, registry), 1, lambda _: None)
    ready = [begun.index(f"prepare-1-{seed}") for seed in SEEDS]
    assert ready == [0, 1]
    assert begun[2:] == ["grpo-1", "rti-1", "equal-1", "grpo-2", "rti-2"]
