"""`rti doctor`: what it finds in sound configs, and in parts with one fault each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from doctor_cases import Capture, doctor, one, sets

pytest.importorskip("torch", reason="needs the extra hf")

from rti.cli import main
from rti.folders import model_folder

# --- the whole ------------------------------------------------------------------------------------


def test_a_sound_config_has_no_warning(pocket_toml: Path, capsys: Capture) -> None:
    code, findings = doctor(capsys, pocket_toml, "--split", "test")
    assert code == 0
    assert not [f for f in findings if f["level"] == "warning"]
    assert list(dict.fromkeys(f["section"] for f in findings)) == [
        "config", "environment", "renderer", "memory", "policy", "roles"
    ]  # fmt: skip
    checks = {f["check"]: f["level"] for f in findings}
    expected = {
        "gold": "ok", "noop": "ok", "forks": "ok", "evidence": "note", "cost": "ok",
        "stop": "ok", "calls": "ok", "prefix": "ok", "loss": "ok", "context": "ok",
        "sampled": "ok", "repeats": "ok", "trainer": "ok", "binds": "ok", "update": "ok",
    }  # fmt: skip
    assert expected.items() <= checks.items()
    assert "4 of them looked at" in one(findings, "tasks")["text"]


def test_the_report_is_readable(pocket_toml: Path, capsys: Capture) -> None:
    assert main(["doctor", str(pocket_toml), "--tasks", "16", "--forks", "1", "--offline"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "config"
    assert "16/16 tasks of split 'train' succeed" in out
    assert "… and" in out
    counts = lines[-1].split(", ")
    assert [c.split()[1] for c in counts] == ["ok", "notes", "warnings", "errors"]
    assert int(counts[0].split()[0]) == sum(line.startswith("  ok ") for line in lines)


def test_only_the_asked_sections(pocket_toml: Path, capsys: Capture) -> None:
    words = ["--only", "environment,roles", *sets("policy.use=cannot-load")]
    code, findings = doctor(capsys, pocket_toml, *words)
    assert code == 0
    assert {f["section"] for f in findings} == {"environment", "roles"}
    assert main(["doctor", str(pocket_toml), "--only", "envronment"]) == 2
    assert "Did you mean 'environment'" in capsys.readouterr().err


def test_offline_loads_no_weights(pocket_toml: Path, capsys: Capture) -> None:
    code, findings = doctor(capsys, pocket_toml, "--offline", *sets("policy.use=cannot-load"))
    assert code == 0
    assert "loaded offline" in one(findings, "loads", "policy")["text"]
    code, findings = doctor(capsys, pocket_toml, *sets("policy.use=cannot-load"))
    assert code == 1
    assert "weights were loaded" in one(findings, "loads", "policy")["text"]


def test_a_config_that_cannot_be_used_is_a_finding(tmp_path: Path, capsys: Capture) -> None:
    code, findings = doctor(capsys, tmp_path / "none.toml")
    assert code == 1
    assert "there is no such file" in one(findings, "loads")["text"]


def test_every_wrong_option_is_told(pocket_toml: Path, capsys: Capture) -> None:
    changes = sets("trainer.learning_rat=1", "gate.delta=-1", "objective.use=nothing")
    code, findings = doctor(capsys, pocket_toml, "--only", "config", *changes)
    assert code == 1
    texts = [f["text"] for f in findings if f["check"] == "plug-ins"]
    assert len(texts) == 3
    assert any("learning_rate" in t for t in texts)
    assert any("delta" in t for t in texts)
    assert any("no objective 'nothing'" in t for t in texts)


# --- config ---------------------------------------------------------------------------------------


def test_sections_that_contradict_each_other(pocket_toml: Path, capsys: Capture) -> None:
    changes = sets(
        "trainer.use=scoreless", "intervention.score_by=trainer", "intervention.when=before_step",
        "validator.use=looks", "verifier.use=[]", "veto.use=[]", "gate.use=[]",
        "rollout.max_context=8",
    )  # fmt: skip
    _, findings = doctor(capsys, pocket_toml, "--only", "config", *changes)
    trainer = [f for f in findings if f["check"] == "trainer"]
    assert [f["level"] for f in trainer] == ["error", "error"]
    assert "does not support" in trainer[0]["text"]
    assert "cannot score" in trainer[1]["text"]
    assert one(findings, "when")["level"] == "warning"
    judges = [f for f in findings if f["check"] == "judges"]
    assert [f["level"] for f in judges] == ["warning", "warning"]
    assert "below plain GRPO" in judges[0]["text"]
    assert one(findings, "room")["level"] == "error"


def foreign(folder: Path) -> Path:
    """The pocket worlds' base model with two words of its vocabulary exchanged."""
    shutil.copytree(model_folder("rti_pocket:base"), folder)
    path = folder / "tokenizer.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    words = table["model"]["vocab"]
    words["telecom"], words["nav"] = words["nav"], words["telecom"]
    path.write_text(json.dumps(table), encoding="utf-8")
    return folder


def test_an_objective_that_needs_a_teacher_has_one(
    pocket_toml: Path, tmp_path: Path, capsys: Capture
) -> None:
    def told(*changes: str, words: tuple[str, ...] = ()) -> tuple[str, str]:
        options = ["--only", "config", *words, *sets(*changes)]
        code, findings = doctor(capsys, pocket_toml, *options)
        found = one(findings, "teacher")
        assert code == (found["level"] == "error")
        return found["level"], found["text"]

    for objective in ("luffy", "opd"):
        level, text = told(f"objective.use={objective}")
        assert level == "error"
        assert "[teacher] weights is empty, but [objective] needs" in text
        use = f"objective.use={objective}"
        assert told(use, "teacher.weights=rti_pocket:base")[0] == "ok"
    level, text = told(use, "teacher.weights=nowhere")
    assert (level, text[:29]) == ("error", "[teacher] weights = 'nowhere'")
    assert told(use, "teacher.weights=nowhere", words=("--offline",))[0] == "note"
    level, text = told(use, f"teacher.weights={foreign(tmp_path / 'foreign')}")
    assert level == "error"
    assert "its tokenizer is not the policy's" in text
    level, text = told("teacher.weights=nowhere")
    assert level == "note"
    assert "grpo learns from no teacher" in text


def test_an_empty_veto_is_told_unless_nothing_is_corrected(
    pocket_toml: Path, capsys: Capture
) -> None:
    words = ["--only", "config", *sets("veto.use=[]")]
    _, findings = doctor(capsys, pocket_toml, *words)
    assert "[veto] is empty" in one(findings, "judges")["text"]
    _, findings = doctor(capsys, pocket_toml, *words, *sets("trigger.use=never"))
    assert one(findings, "judges")["level"] == "ok"


# --- environment ----------------------------------------------------------------------------------


def test_an_environment_with_faults(pocket_toml: Path, capsys: Capture) -> None:
    words = ["--only", "environment", *sets("environment.use=broken")]
    code, findings = doctor(capsys, pocket_toml, *words)
    assert code == 1
    assert one(findings, "forks")["level"] == "error"
    assert one(findings, "evidence")["level"] == "error"
    assert one(findings, "evidence")["details"]


def test_a_crash_is_a_finding(pocket_toml: Path, capsys: Capture) -> None:
    code, findings = doctor(capsys, pocket_toml, "--offline", *sets("environment.use=crashes"))
    assert code == 1
    text = one(findings, "tasks")["text"]
    assert "it crashed: ValueError: no such table (doctor_plugins.py, line" in text


# --- renderer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("renderer", "check", "level", "words"),
    [
        ("bytes", "tools", "ok", "tools of the agent are named"),
        ("bytes", "calls", "ok", "two in a turn"),
        ("bytes", "text", "ok", "none can forge the end of a turn"),
        ("pocket", "stop", "ok", "turns end with 2 '<e>'"),
        ("bytes", "stop", "warning", "name end tokens beside: [2]"),
        ("drops-tools", "tools", "error", "not in the rendered prompt"),
        ("loses-calls", "calls", "error", "do not come back"),
        ("ascii", "text", "warning", "odd texts do not survive"),
        ("ascii", "calls", "warning", "beyond ASCII"),
        ("endless", "stop", "error", "no turn would ever end"),
        ("forgeable", "text", "warning", "untrusted text can end turns"),
        ("breaks", "loads", "error", "vocabulary"),
    ],
)
def test_renderers(
    renderer: str, check: str, level: str, words: str, pocket_toml: Path, capsys: Capture
) -> None:
    code, findings = doctor(
        capsys, pocket_toml, "--offline", "--only", "renderer", *sets(f"renderer.use={renderer}")
    )
    found = one(findings, check, "renderer")
    assert (found["level"], words in found["text"]) == (level, True), found
    assert code == (level == "error")


def test_prefixes_that_break_cost_samples(pocket_toml: Path, capsys: Capture) -> None:
    words = ["--offline", "--only", "renderer"]
    _, findings = doctor(capsys, pocket_toml, *words, *sets("renderer.use=bytes"))
    found = one(findings, "prefix")
    assert found["level"] == "ok"
    assert "as they are, cut off at max_new_tokens, with a thought" in found["text"]

    _, findings = doctor(capsys, pocket_toml, *words, *sets("renderer.use=forgets"))
    broken, fine = [f for f in findings if f["check"] == "prefix"]
    assert (broken["level"], fine["level"]) == ("warning", "ok")
    assert "turns with a thought" in broken["text"]
    assert "at turn 1, 2 of 3" in broken["text"]
    assert "split into 3 training samples" in broken["text"]

    _, findings = doctor(capsys, pocket_toml, *words, *sets("renderer.use=rewrites"))
    found = one(findings, "prefix")
    assert found["level"] == "warning"
    assert "turns as they are, cut off at max_new_tokens, with a thought:" in found["text"]


def test_prompts_that_do_not_fit(pocket_toml: Path, capsys: Capture) -> None:
    words = ["--offline", "--only", "renderer"]
    code, findings = doctor(capsys, pocket_toml, *words, *sets("rollout.max_context=20"))
    assert (code, one(findings, "context")["level"]) == (1, "error")
    assert "4 of 4 tasks have no room" in one(findings, "context")["text"]

    code, findings = doctor(capsys, pocket_toml, *words, *sets("rollout.max_context=54"))
    assert (code, one(findings, "context")["level"]) == (0, "warning")
    assert "truncated before they can succeed" in one(findings, "context")["text"]

    _, findings = doctor(capsys, pocket_toml, *words, *sets("rollout.max_context=1024"))
    assert "max_position_embeddings = 512" in one(findings, "context")["text"]


# --- policy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        (["policy.use=shifted"], "sampled", "warning", "0.3 at most"),
        (["policy.use=shifted", "policy.by=0.05"], "sampled", "ok", "0.05 at most"),
        (["policy.use=shifted", "policy.by=2"], "sampled", "error", "not the same model"),
        (["policy.use=not-a-number"], "sampled", "error", "not finite"),
        (["policy.use=stale"], "sampled", "error", "dropped as stale"),
        (["policy.use=moody"], "repeats", "warning", "draw different tokens"),
        (["trainer.use=shifted"], "trainer", "warning", 'score_by = "trainer"'),
    ],
)
def test_policies_and_trainers(
    change: list[str], check: str, level: str, words: str, pocket_toml: Path, capsys: Capture
) -> None:
    code, findings = doctor(
        capsys, pocket_toml, "--only", "policy", "--tokens", "3", *sets(*change)
    )
    found = one(findings, check, "policy")
    assert (found["level"], words in found["text"]) == (level, True), found
    assert code == (level == "error")


def test_a_trainer_that_cannot_score_is_told(pocket_toml: Path, capsys: Capture) -> None:
    words = ["--only", "policy", *sets("trainer.use=scoreless")]
    _, findings = doctor(capsys, pocket_toml, *words)
    assert one(findings, "trainer", "policy")["level"] == "note"


@pytest.mark.parametrize(
    ("says", "level", "words"),
    [
        ("ok", "ok", "the far end was asked"),
        ("warning", "warning", "the far end was asked"),
        ("grand", "error", "gave the level 'grand'"),
        ("crash", "error", "ZeroDivisionError"),
        ("never", "error", "no word within [rollout] timeout_s = 0.2 s"),
    ],
)
def test_what_serves_an_environment_is_asked_and_its_stand_in_is_played(
    says: str, level: str, words: str, pocket_toml: Path, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("SERVED_SAYS", says)
    changes = sets("environment.use=served", "rollout.timeout_s=0.2")
    code, findings = doctor(capsys, pocket_toml, "--only", "environment", *changes)
    found = one(findings, "check")
    assert (found["level"], words in found["text"]) == (level, True), found
    assert code == (level == "error")
    assert one(findings, "gold")["level"] == "ok"
    code, findings = doctor(capsys, pocket_toml, "--offline", "--only", "environment", *changes)
    assert code == 0
    assert one(findings, "check")["text"] == "not asked offline: what its sessions ask"


# --- roles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "level", "words"),
    [
        ("ok", "ok", "the far end was asked (validator asked)"),
        ("warning", "warning", "the far end was asked"),
        ("error", "error", "the far end was asked"),
        ("grand", "error", "gave the level 'grand'"),
        ("crash", "error", "ZeroDivisionError"),
    ],
)
def test_roles_are_asked(
    says: str, level: str, words: str, pocket_toml: Path, capsys: Capture
) -> None:
    changes = sets("validator.use=asked", f"validator.says={says}")
    code, findings = doctor(capsys, pocket_toml, "--only", "roles", *changes)
    found = one(findings, "check")
    assert (found["level"], words in found["text"]) == (level, True), found
    assert code == (level == "error")


def test_a_role_that_never_answers_is_an_error(
    pocket_toml: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rti.doctor import roles

    monkeypatch.setattr(roles, "LEAST_SECONDS", 0.05)
    changes = sets("validator.use=asked", "validator.says=never", "teacher.timeout_s=0.02")
    code, findings = doctor(capsys, pocket_toml, "--only", "roles", *changes)
    assert code == 1
    assert "no word within 0.05 s" in one(findings, "check")["text"]


@pytest.mark.parametrize(
    ("url", "key", "level", "words"),
    [
        ("http://127.0.0.1:8000/v1", "", "ok", "no key"),
        ("https://teach.example/v1", "", "note", "ROLE_KEY ([teacher] key_env) is not set"),
        ("https://teach.example/v1", "secret-7", "ok", "a key in ROLE_KEY"),
        ("http://teach.example/v1", "secret-7", "warning", "unencrypted"),
        ("", "", "warning", "names an endpoint"),
    ],
)
def test_endpoints_are_looked_at_offline_and_not_asked(
    url: str, key: str, level: str, words: str, pocket_toml: Path, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("ROLE_KEY", key)
    changes = sets(
        "validator.use=asked", "validator.says=error", f"validator.base_url='{url}'",
        "validator.key_env=ROLE_KEY", "teacher.max_requests=9",
    )  # fmt: skip
    code, findings = doctor(capsys, pocket_toml, "--offline", "--only", "roles", *changes)
    assert code == 0
    found = one(findings, "teacher")
    assert (found["level"], words in found["text"]) == (level, True), found
    assert one(findings, "check")["text"] == "not asked offline: validator asked"
    assert "secret-7" not in json.dumps(findings)
