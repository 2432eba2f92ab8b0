"""`rti report`, without a browser: what the page holds, and what it says of broken input."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import RUNS, changed, compare, embedded, events, long_run, write

from rti.cli import main
from rti.compare.stats import mean_interval
from rti.report import write_report
from rti.report.counts import perplexities
from rti.report.curves import line, resample, smooth, thin, together
from rti.report.embed import embed
from rti.report.reading import read_run
from rti.report.source import read_source
from rti.report.transcripts import word_diff

LIMIT = 3_000_000
ASSETS = Path(__file__).parents[1] / "rti" / "report" / "assets"
RUN = RUNS / "rti-3"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(RUN, tmp_path_factory.mktemp("report") / "run.html").path


@pytest.fixture(scope="module")
def data(page: Path) -> Any:
    return embedded(page)


def of(kind: str, run: Path = RUN) -> list[dict[str, Any]]:
    return [e for e in events(run) if e["event"] == kind]


# --- a run ---------------------------------------------------------------------------------------


def test_the_command_writes_one_file_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(RUN, tmp_path / "rti-3")
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    looks = len(of("TurnRepaired"))
    assert said.startswith(f"{run / 'report.html'}: ")
    assert f"{looks} of {looks} transcripts" in said
    assert main(["report", str(run / "events.jsonl"), "--out", str(tmp_path / "a" / "b.html")]) == 0
    assert (tmp_path / "a" / "b.html").read_bytes() == (run / "report.html").read_bytes()


def test_the_funnel_counts_what_the_steps_counted(data: Any) -> None:
    rows = {row["name"]: row for row in data["inside"]["rti"]["funnel"]}
    steps = [e["metrics"] for e in of("StepDone")]
    for name, metric in (("all failed", "groups_all_failed"), ("candidates", "funnel/candidates"),
                         ("looks", "funnel/attempts"), ("flagged", "funnel/flagged"),
                         ("corrected", "funnel/corrected"), ("verified", "funnel/verified"),
                         ("gated in", "funnel/admitted"), ("succeeded", "funnel/succeeded"),
                         ("trained", "funnel/trained")):  # fmt: skip
        assert rows[name]["count"] == sum(m[metric] for m in steps), name
    names = list(rows)
    for before, after in pairwise(names):
        if rows[before]["unit"] == rows[after]["unit"] == "looks":
            lost = sum(loss["count"] for loss in rows[after]["lost"])
            assert rows[before]["count"] - lost == rows[after]["count"], after


def test_every_loss_has_its_reasons(data: Any) -> None:
    stages = Counter(e["stage"] for e in of("TurnRepaired"))
    losses = {x["stage"]: x for row in data["inside"]["rti"]["funnel"] for x in row["lost"]}
    for stage in ("vetoed", "rejected", "gated"):
        assert losses[stage]["count"] == stages[stage]
        assert sum(n for _, n in losses[stage]["reasons"]) == stages[stage]
    assert losses["gated"]["reasons"] == [["perplexity above 5", stages["gated"]]]
    # Quoted values are of one case: without them the reasons of a stage are few.
    assert losses["vetoed"]["reasons"][0][0] == "leaks: id … in direction"


def test_histograms_hold_every_perplexity_and_weight(data: Any) -> None:
    looks = of("TurnRepaired")
    ppl = data["inside"]["rti"]["ppl"]
    scored = [e["perplexity"] for e in looks if e["perplexity"] is not None]
    assert sum(ppl["admitted"]) + sum(ppl["stopped"]) == len(scored)
    assert sum(ppl["stopped"]) == sum(e["stage"] == "gated" for e in looks)
    assert ppl["deltas"] == [5]
    weights = [w for e in looks for w in e["weights"]]
    found = data["inside"]["rti"]["weights"]
    assert sum(found["counts"]) == found["tokens"] == len(weights)
    low, high = found["edges"][0], found["edges"][-1]
    assert low <= min(weights) + 1e-4
    assert high >= max(weights) - 1e-4
    top = sum(w >= found["edges"][-2] for w in weights)
    assert found["counts"][-1] == top


def test_a_delta_of_0_is_one(tmp_path: Path) -> None:
    def closed(event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] == "TurnRepaired" and event["perplexity"] is not None:
            return {**event, "threshold": 0.0, "stage": "gated"}
        return event

    found = perplexities([read_run(changed(tmp_path / "run", closed))])
    assert found is not None
    assert found["deltas"] == [0]
    assert sum(found["stopped"]) == found["looks"] > 0
    assert sum(found["admitted"]) == 0


def test_a_perplexity_equal_to_delta_is_on_its_side(tmp_path: Path) -> None:
    def level(event: dict[str, Any]) -> dict[str, Any]:
        scored = event.get("perplexity") is not None and event["stage"] != "gated"
        return {**event, "perplexity": 5.0} if scored else event

    found = embedded(write_report(changed(tmp_path / "run", level)).path)
    ppl = next(iter(found["inside"].values()))["ppl"]
    at = next(i for i, edge in enumerate(ppl["edges"]) if abs(edge - 5) < 1e-3)
    assert sum(ppl["admitted"][:at]) == sum(ppl["admitted"]) > 0
    assert sum(ppl["stopped"][at:]) == sum(ppl["stopped"]) > 0


def test_curves_are_those_of_the_events(data: Any) -> None:
    view = next(v for v in data["learning"] if (v["metric"], v["tasks"]) == ("pass@1", "all tasks"))
    evaluated = of("Evaluated")
    assert view["plot"]["x"] == [e["step"] for e in evaluated]
    expected = [e["metrics"]["pass@1"] for e in evaluated]
    assert view["plot"]["lines"][0]["mean"] == pytest.approx(expected, rel=1e-4)
    assert {v["tasks"] for v in data["learning"]} >= {"AH", "BH", "all, and each family"}
    labels = {x["label"]: x for x in data["ppl"]["lines"]}
    probes = [v for v in labels["fixed probe"]["mean"] if v is not None]
    assert probes == pytest.approx([e["metrics"]["probe_ppl"] for e in evaluated], rel=1e-4)
    first = of("StepDone")[0]["metrics"]
    assert labels["intervened turns"]["mean"][0] == pytest.approx(first["mean_ppl"], rel=1e-4)
    assert data["passG"]["lines"][0]["mean"][0] == pytest.approx(first["pass@G"], rel=1e-4)
    made_up = {x["label"]: x["mean"][0] for x in data["madeUp"]["lines"]}
    assert made_up["in training"] == pytest.approx(first["made_up"], rel=1e-4)
    assert made_up["held out"] == pytest.approx(evaluated[0]["metrics"]["made_up"], rel=1e-4)


def test_what_was_spent_adds_up(data: Any) -> None:
    spent, steps, ended = data["spent"]["rti"], of("StepDone"), of("RunEnded")[-1]
    assert spent["tokens"]["sampled"] == sum(e["metrics"]["sampled_tokens"] for e in steps)
    assert sum(spent["time"].values()) == pytest.approx(ended["seconds"], rel=1e-3)
    assert [t["last"] for t in data["tiles"] if t["words"].startswith("tokens")] == [
        f"{ended['tokens']:,.0f}"
    ]


def test_a_transcript_tells_all_of_a_look(data: Any) -> None:
    trained = next(e for e in of("TurnRepaired") if e["trained"])
    shown = next(e for e in data["transcripts"]["entries"] if e["trained"])
    joined = {side: "".join(text for _, text in shown[side]) for side in ("draft", "correction")}
    assert joined == {"draft": trained["draft"], "correction": trained["correction"]}
    assert data["transcripts"]["histories"][shown["history"]] == trained["history"]
    for name in ("task", "family", "diagnosis", "verdicts", "gates", "tokens", "after", "outcome"):
        assert shown[name] == trained[name], name
    assert shown["weights"] == pytest.approx(trained["weights"], rel=1e-4)
    assert "model base" not in shown["by"]
    assert "rti_pocket:base" in shown["by"]


# --- the file ------------------------------------------------------------------------------------


def test_it_asks_for_nothing_outside_itself(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<(link|img|iframe|object|embed)\b", text)
    assert not re.search(r"\b(src|srcset)=", text.partition('id="data"')[0])
    assert "@import" not in text
    assert "url(" not in text.partition("</style>")[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy[1]


def test_own_scripts_never_read_html_from_data() -> None:
    scripts = [p for p in ASSETS.glob("*.js") if not p.name.startswith("uPlot")]
    assert len(scripts) > 5
    for path in scripts:
        text = path.read_text(encoding="utf-8")
        found = re.search(r"(inner|outer)HTML|insertAdj|document\.write|\beval\b|Function\(", text)
        assert found is None, path.name


def test_text_cannot_leave_the_data(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!-- \u2028 \ud800"

    def spoil(event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] == "TurnRepaired":
            return {**event, "task": evil, "draft": evil, "history": evil, "tokens": [evil]}
        return {**event, "words": evil} if event["event"] == "StepDone" else event

    folder = tmp_path / "evil"
    folder.mkdir()
    lines = [json.dumps(spoil(e)) + "\n" for e in events(RUN)]  # ASCII: half a pair survives it
    (folder / "events.jsonl").write_text("".join(lines), encoding="utf-8")
    written = write_report(folder)
    text = written.path.read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script") == 3
    assert "\u2028" not in text
    assert embedded(written.path)["transcripts"]["entries"][0]["task"] == evil


def test_200_steps_stay_below_the_limit_and_show_all_that_was_trained_on(tmp_path: Path) -> None:
    written = write_report(long_run(tmp_path / "made-up", 200))
    assert written.size == written.path.stat().st_size < LIMIT
    shown, told = written.transcripts
    assert told == sum(e["event"] == "TurnRepaired" for e in events(tmp_path / "made-up"))
    found = embedded(written.path)["transcripts"]
    assert (len(found["entries"]), found["total"]) == (shown, told)
    assert 0 < shown < told
    assert found["trainedShown"] == found["trained"] > 50
    steps = {e["step"] for e in found["entries"] if e["stage"] == "vetoed"}
    assert len([s for s in steps if s < 66]) > 20
    assert len([s for s in steps if s > 133]) > 20
    ids = [e["id"] for e in found["entries"]]
    assert len(set(ids)) == len(ids)
    first = written.path.read_bytes()
    assert write_report(tmp_path / "made-up").path.read_bytes() == first


def test_long_texts_are_cut_and_the_limit_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lengthen(event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] != "TurnRepaired":
            return event
        more = f"{event['task']} {event['rollout']} " + "<word> " * 30_000
        return {**event, "history": more, "after": more, "draft": more}

    written = write_report(changed(tmp_path / "long", lengthen))
    assert written.size < LIMIT
    entry = embedded(written.path)["transcripts"]["entries"][0]
    draft = "".join(text for _, text in entry["draft"])
    assert "characters left out" in draft
    assert len(draft) < 10_000
    assert written.size < 2_200_000
    # A page that has much else in it has room for fewer.
    monkeypatch.setattr("rti.report.page.TRANSCRIPTS", 10**9)
    more = write_report(tmp_path / "long")
    assert written.size < more.size < LIMIT
    assert written.transcripts < more.transcripts < (more.transcripts[1],) * 2


def test_it_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rti.report import write_report; "
        f"write_report(Path({str(RUN)!r}), Path(sys.argv[1])); "
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules), 'heavy imports'"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "report.html")]
    assert subprocess.run(words, capture_output=True, text=True).stderr == ""


# --- a compare -----------------------------------------------------------------------------------


def test_a_compare_shows_arms_pairs_and_bands(tmp_path: Path) -> None:
    written = write_report(compare(tmp_path / "lab"))
    assert written.path == tmp_path / "lab" / "report.html"
    assert written.notes == ()
    found, stored = embedded(written.path), json.loads((tmp_path / "lab/compare.json").read_text())
    assert [row["arm"] for row in found["armTable"]["rows"]] == ["grpo", "rti"]
    head = found["armTable"]["head"]
    assert head[:3] == ["seeds", "pass@1", "pass@2"]
    rti = stored["arms"]["rti"]["pass@2"]
    cell = found["armTable"]["rows"][1]["cells"][2]
    assert cell["text"] == f"{rti['mean']:.3f}"
    assert [p["name"] for p in found["pairs"]] == ["rti − grpo"]
    assert found["pairs"][0]["mean"] == pytest.approx(
        stored["paired"]["rti-grpo"]["mean"], abs=1e-4
    )
    groups = {v["tasks"] for v in found["learning"]}
    assert {"hard", "easy", "all tasks", "AH"} <= groups
    seeds = [of("StepDone", tmp_path / "lab" / f"rti-{s}") for s in (3, 4)]
    values = [said[0]["metrics"]["pass@G"] for said in seeds]
    line = next(x for x in found["passG"]["lines"] if x["arm"] == "rti")
    mean, low, high = mean_interval(values)
    assert line["mean"][0] == pytest.approx(mean, rel=1e-4)
    assert low is not None
    assert high is not None
    assert line["low"][0] == pytest.approx(max(0, low), rel=1e-4)
    assert line["high"][0] == pytest.approx(min(1, high), rel=1e-4)


def test_a_compare_that_goes_on_shows_its_unfinished_run(tmp_path: Path) -> None:
    lab = compare(tmp_path / "lab")
    stored = json.loads((lab / "compare.json").read_text())
    del stored["cells"]["rti-4"]
    (lab / "compare.json").write_text(json.dumps(stored))
    write(lab / "rti-4", events(RUNS / "rti-4")[:-6])
    written = write_report(lab)
    assert [n for n in written.notes if "rti-4" in n and "no end on record" in n]
    assert [row[:2] for row in embedded(written.path)["runTable"]["rows"]][-1] == [
        {"text": "rti", "small": ""},
        {"text": "4", "small": ""},
    ]


def test_a_compare_without_its_runs_shows_its_curves(tmp_path: Path) -> None:
    lab = compare(tmp_path / "lab")
    (lab / "compare.json").rename(tmp_path / "stored.json")
    shutil.rmtree(lab)
    written = write_report(tmp_path / "stored.json")
    assert written.path == tmp_path / "stored.html"
    assert len(written.notes) == 4
    found = embedded(written.path)
    assert found["learning"][0]["tasks"] == "hard, as compared"
    assert len(found["learning"][0]["plot"]["lines"]) == 2
    assert found["armTable"]["rows"][0]["cells"][1]["text"]


def test_a_copy_of_a_compare_is_read_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(tmp_path / "runs" / "lab")
    copy = Path(shutil.copytree(tmp_path / "runs" / "lab", tmp_path / "backup" / "lab"))
    results = json.loads((copy / "compare.json").read_text(encoding="utf-8"))
    for name, cell in results["cells"].items():
        cell["folder"] = f"runs/lab/{name}"
    (copy / "compare.json").write_text(json.dumps(results), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    logs = read_source(Path("backup/lab")).logs()
    assert logs
    assert all(log.folder.parent == Path("backup/lab") for log in logs)


def test_a_folder_of_runs_is_a_compare_that_has_no_result_yet(tmp_path: Path) -> None:
    lab = compare(tmp_path / "lab")
    (lab / "compare.json").unlink()
    written = write_report(lab)
    assert "no compare.json yet" in written.notes[0]
    found = embedded(written.path)
    assert found["arms"] == ["grpo", "rti"]
    assert found["armTable"]["rows"][1]["cells"][0]["text"] == "2"


# --- states and faults ---------------------------------------------------------------------------


def test_a_killed_run_is_shown_as_far_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "killed", events(RUN)[:-3])
    with (run / "events.jsonl").open("ab") as file:
        file.write(b"no json\n" + '{"event": "StepDone", "step": 2, "words": "é'.encode()[:-1])
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    assert "still going, or was killed" in said
    assert "last line of events.jsonl was cut short" in said
    assert "1 line of events.jsonl could not be read" in said
    assert embedded(run / "report.html")["notes"]


def test_a_run_before_its_first_step(tmp_path: Path) -> None:
    written = write_report(write(tmp_path / "new", events(RUN)[:1]))
    assert any("No step is done yet" in note for note in written.notes)
    assert embedded(written.path)["learning"] == []


def test_events_of_an_older_version_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    new = ("after", "draft_tokens", "made_up", "made_up_values")

    def age(event: dict[str, Any]) -> dict[str, Any]:
        old = {k: v for k, v in event.items() if k not in new}
        if "metrics" in old:
            old["metrics"] = {k: v for k, v in old["metrics"].items() if k not in new}
        return old

    found = embedded(write_report(changed(tmp_path / "old", age)).path)
    assert found["madeUp"] is None
    assert all("after" not in e for e in found["transcripts"]["entries"])
    assert found["inside"]["rti"]["funnel"] if "rti" in found["inside"] else found["inside"]


def test_a_number_without_end_and_a_name_that_is_no_text_are_no_crash(tmp_path: Path) -> None:
    run = changed(tmp_path / "r\udcff", lambda e: e)
    with (run / "events.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"event": "StepDone", "step": 1e999, "metrics": {}}\n')
    assert read_run(run).unread == 1
    assert "<title>r\\udcff" in write_report(run, tmp_path / "x.html").path.read_text("utf-8")


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    end = {**events(RUN)[-1], "status": "failed", "reason": "The server is gone."}
    notes = write_report(write(tmp_path / "f", [*events(RUN)[:-1], end])).notes
    assert notes == ("This run failed after 3 steps: The server is gone.",)


@pytest.mark.parametrize(
    ("name", "files", "code", "words"),
    [
        ("", None, 2, "there is no such file or folder"),
        ("", {"notes.txt": "x"}, 2, "is neither a run (events.jsonl) nor a compare"),
        ("notes.txt", {"notes.txt": "x"}, 2, "name a run's folder"),
        ("", {"events.jsonl": ""}, 1, "is empty"),
        ("", {"events.jsonl": "x\ny\n"}, 1, "holds no event in 2 lines"),
        ("", {"events.jsonl": "[1, 2]\n3\n"}, 1, "holds no event in 2 lines"),
        ("", {"events.jsonl": '{"event": "StepDone", "step": "x"}\n'}, 1, "holds no event in 1"),
        ("", {"config.toml": ""}, 1, "is a run without events.jsonl"),
        ("", {"compare.json": "{"}, 2, "cannot be read as JSON"),
        ("", {"compare.json": '{"a": 1}'}, 2, "no result of `rti compare`"),
        ("", {"compare.json": '{"arms": {}, "cells": {"a-1": {}}}'}, 1, "names no run that can be"),
        ("state.json", {"state.json": "[]"}, 2, "no result of `rti compare`"),
    ],
)  # fmt: skip
def test_what_is_neither_run_nor_compare_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    files: dict[str, str] | None,
    code: int,
    words: str,
) -> None:
    place = tmp_path / "here"
    if files is not None:
        place.mkdir()
        for file, text in files.items():
            (place / file).write_text(text)
    assert main(["report", str(place / name)]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert "bug" not in said


def test_a_checkpoint_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(RUN, tmp_path / "run")
    inner = run / "checkpoints" / "step-000003"
    inner.mkdir(parents=True)
    (inner / "state.json").write_text("{}")
    assert main(["report", str(inner)]) == 2
    assert f"Did you mean the run {run}?" in capsys.readouterr().err


def test_out_must_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(RUN), "--out", str(tmp_path)]) == 2
    assert "is a folder: name a file in it" in capsys.readouterr().err


# --- properties ----------------------------------------------------------------------------------


@given(st.recursive(st.none() | st.text() | st.integers(), lambda s: st.lists(s, max_size=3)))
def test_embedded_data_is_what_it_was(value: Any) -> None:
    text = embed(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode("utf-8")


@given(st.text("ab .<>\n\té", max_size=40), st.text("ab .<>\n\té", max_size=40))
def test_a_diff_keeps_both_texts_and_marks_only_differences(draft: str, correction: str) -> None:
    left, right = word_diff(draft, correction)
    assert "".join(text for _, text in left) == draft
    assert "".join(text for _, text in right) == correction
    kept = ["".join(text for changed, text in side if not changed) for side in (left, right)]
    assert kept[0] == kept[1]
    if draft == correction:
        assert not any(changed for changed, _ in left + right)


def test_texts_that_say_one_thing_over_and_over_are_compared_in_time() -> None:
    begun = time.process_time()
    left, right = word_diff("So: " + "! " * 3000 + "end", "So: " + "! " * 2900 + "? end")
    assert time.process_time() - begun < 1
    assert ("".join(t for _, t in left), "".join(t for _, t in right)) == (
        "So: " + "! " * 3000 + "end", "So: " + "! " * 2900 + "? end"
    )  # fmt: skip
    left, right = word_diff("a" + " ! ?" * 900 + " b", "a" + " ? ?" * 900 + " b")
    assert [changed for changed, _ in left] == [changed for changed, _ in right] == [0, 1, 0]


def test_seeds_of_different_length_are_thinned_on_one_grid() -> None:
    """Else means of neighbouring points would be over other seeds, and zigzag."""
    level = {290: 0.2, 294: 0.2, 298: 0.2, 320: 0.8, 340: 0.8}
    seeds = [{float(x): v for x in range(n)} for n, v in level.items()]
    made = line("a", "a", together(seeds), every=False)
    assert made is not None
    assert len(made.points) <= 300
    shown = [made.points[x] for x in sorted(made.points) if x < 290]
    assert shown == pytest.approx([0.44] * len(shown))


curves = st.dictionaries(st.integers(0, 999).map(float), st.floats(-9, 9), min_size=1, max_size=60)


@given(curves, st.integers(1, 50))
def test_curves_stay_within_their_values(points: dict[float, float], size: int) -> None:
    low, high = min(points.values()) - 1e-9, max(points.values()) + 1e-9
    short = thin(points, size)
    assert len(short) <= size
    for made in (short, smooth(points, sorted(points), size), resample(points, sorted(points))):
        assert all(low <= v <= high for v in made.values())
    assert resample(points, sorted(points)) == points
    assert smooth(points, sorted(points), 1) == pytest.approx(points)
