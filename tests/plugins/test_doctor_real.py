"""`rti doctor` on real models, real chat formats, and a real endpoint on loopback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from doctor_cases import RECIPES, Capture, doctor, one, sets
from qwen_tokenizer import make_qwen_tokenizer
from scripted_endpoint import Scripted, chat, completion

pytest.importorskip("torch", reason="needs the extra hf")

ANSWER = '{"reason": "", "agrees": true, "leaks": false, "plausible": true}'


@pytest.mark.slow
def test_smollm2_on_real_tasks(smollm2_folder: Path, capsys: Capture) -> None:
    pytest.importorskip("tau2", reason="needs the extra tau2")
    words = ["--offline", "--only", "renderer,memory", *sets(f"model.path={smollm2_folder}")]
    code, findings = doctor(capsys, RECIPES / "tau2-telecom-smollm2.toml", *words)
    assert code == 0
    assert {f["level"] for f in findings} == {"ok"}
    assert "2 '<|im_end|>'; it is the padding token too" in one(findings, "stop")["text"]
    assert one(findings, "tools")["text"].startswith("all 13 tools of the agent")
    assert "calls of all 13 tools" in one(findings, "calls")["text"]
    assert "with a thought" in one(findings, "prefix")["text"]
    assert "of the 8192 that fit" in one(findings, "context")["text"]
    assert "134.5 M parameters" in one(findings, "update")["details"][0]


@pytest.mark.slow
def test_smollm2_scores_what_it_samples(
    smollm2_folder: Path, pocket_toml: Path, capsys: Capture
) -> None:
    words = ["--only", "renderer,policy", "--tokens", "6"]
    changes = sets("renderer.use=chatml", f"model.path={smollm2_folder}")
    code, findings = doctor(capsys, pocket_toml, *words, *changes)
    assert code == 0
    for check in ("sampled", "trainer"):
        found = one(findings, check, "policy")
        assert found["level"] == "ok"
        assert "(12 tokens)" in found["text"]
    assert one(findings, "repeats")["level"] == "ok"


@pytest.mark.parametrize(
    ("options", "broken"),
    [(["keep", "true"], ""), (["strip", "true"], "at turn 1, 2"), (["keep", "false"], "")],
)
def test_thinking_of_qwen3(
    options: list[str], broken: str, tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("tau2", reason="needs the extra tau2")
    changes = sets(
        f"renderer.tokenizer={make_qwen_tokenizer(tmp_path)}", f"renderer.thinking={options[0]}",
        f"renderer.enable_thinking={options[1]}", "rollout.max_context=0",
    )  # fmt: skip
    words = ["--offline", "--only", "renderer", *changes]
    code, findings = doctor(capsys, RECIPES / "tau2-telecom-qwen3-8b-self.toml", *words)
    assert code == 0
    assert one(findings, "calls")["level"] == "ok"
    assert one(findings, "text")["level"] == "ok"
    warned = [f["text"] for f in findings if f["level"] == "warning"]
    assert len(warned) == bool(broken), warned
    for text in warned:
        assert broken in text
        assert "is split into" in text


@pytest.fixture
def teacher() -> Scripted:
    """An endpoint that answers chats with logprobs, and plain text without."""
    told = chat(ANSWER)
    told["choices"][0]["logprobs"] = {"content": [{"token": "{", "logprob": -0.1}]}
    return Scripted([lambda body: told if "messages" in body else completion("x")])


def test_a_teacher_is_asked_what_it_can(
    teacher: Scripted, pocket_toml: Path, capsys: Capture, tmp_path: Path
) -> None:
    pytest.importorskip("openai", reason="needs the extra teacher")
    with teacher:
        changes = sets("corrector.use=teacher", f"teacher.base_url={teacher.url}")
        code, findings = doctor(capsys, pocket_toml, "--only", "roles", *changes)
    said = {f["text"]: f["level"] for f in findings if f["check"] == "check"}
    assert any("logprobs" in text for text in said), said
    assert all(text.endswith("(corrector teacher)") for text in said)
    assert code == ("error" in said.values())
    assert teacher.asked
    assert not (tmp_path / "run").exists()  # a doctor writes nothing into the run's folder


def test_a_teacher_that_is_not_there_is_an_error(pocket_toml: Path, capsys: Capture) -> None:
    pytest.importorskip("openai", reason="needs the extra teacher")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        words = ["--only", "roles", *sets("corrector.use=teacher", f"teacher.base_url={url}")]
        code, findings = doctor(capsys, pocket_toml, *words)
        assert code == 1
        [error] = [f for f in findings if f["level"] == "error"]
        assert url in error["text"]
        code, _ = doctor(capsys, pocket_toml, "--offline", *words)
        assert code == 0
