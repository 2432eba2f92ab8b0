"""Every recipe passes `rti doctor --offline`, so that none can rot."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from doctor_cases import RECIPES, Capture, doctor, one, sets

pytest.importorskip("torch", reason="needs the extra hf")

from rti.config import PLUGIN_SECTIONS, load_config, resolve_config
from rti.registry import Registry

ABLATIONS = sorted(RECIPES.glob("ablations/*.toml"))
COMPARES = sorted(RECIPES.glob("compare/*.toml"))


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_recipes_pass_without_network_model_gpu_or_teacher(
    recipe: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("tau2", reason="needs the extra tau2")

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)  # models/ is not here
    code, findings = doctor(capsys, recipe, "--offline")
    assert code == 0
    warned = [f["check"] for f in findings if f["level"] == "warning"]
    if recipe.stem in {"tau2-retail-smollm2", "tau2-airline-smollm2"}:
        assert warned == ["gold"]  # three turns are too few for most tasks: they only show the path
    else:
        assert warned == (["judges"] if recipe.stem.endswith("no-verifier") else [])
    if "pocket" not in recipe.stem:
        assert one(findings, "model")["level"] == "note"
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there_is_an_error_online(capsys: Capture) -> None:
    pytest.importorskip("tau2", reason="needs the extra tau2")
    recipe = RECIPES / "tau2-telecom-qwen3-8b-self.toml"
    code, findings = doctor(capsys, recipe, *sets("model.path=nowhere/Qwen3-8B"))
    assert code == 1
    assert "no config.json in there" in one(findings, "model")["text"]


def test_self_and_teacher_recipes_differ_in_use_alone() -> None:
    one_, other = (
        [
            line
            for line in (RECIPES / f"tau2-telecom-qwen3-8b-{name}.toml").read_text().splitlines()
            if not line.startswith("#")
        ]
        for name in ("self", "teacher")
    )
    changed = [(a, b) for a, b in zip(one_, other, strict=True) if a != b]
    assert changed == [('use = "self"', 'use = "teacher"')]
    registry = Registry.load()
    mine, theirs = (
        resolve_config(load_config(RECIPES / f"tau2-telecom-qwen3-8b-{name}.toml"), registry)
        for name in ("self", "teacher")
    )
    for name in PLUGIN_SECTIONS:
        if name != "corrector":
            assert getattr(mine, name) == getattr(theirs, name)
    shared = mine.corrector.options.keys() & theirs.corrector.options.keys()
    assert "max_new_tokens" in shared
    assert all(mine.corrector.options[k] == theirs.corrector.options[k] for k in shared)


@pytest.mark.parametrize("recipe", ABLATIONS, ids=lambda p: p.stem)
def test_ablations_are_overlays_that_resolve(recipe: Path) -> None:
    lines = [x for x in recipe.read_text(encoding="utf-8").splitlines() if x[:1] != "#"]
    assert lines[0].startswith("extends = ")
    assert len(lines) <= 4
    changed = resolve_config(load_config(recipe), Registry.load())
    base = resolve_config(load_config(RECIPES / "pocket-rti.toml"), Registry.load())
    assert changed != base


@pytest.mark.parametrize("file", COMPARES, ids=lambda p: p.stem)
def test_compares_are_whole_matrices(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rti.compare import plan, read_spec

    monkeypatch.chdir(RECIPES.parent)
    made = plan(read_spec(file), Registry.load())
    assert len(made.cells) >= 15
