"""What the tests share: small runs in the pocket worlds, by the shipped base model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import POCKET
from hypothesis import settings

from rti.assemble import Run, assemble
from rti.config import load_config
from rti.registry import Registry

# No deadline: torch's first call is slow, and machines are shared.
settings.register_profile("rti", deadline=None)
settings.load_profile("rti")

Build = Callable[..., Run]


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The built-in plug-ins."""
    return Registry.load()


@pytest.fixture
def pocket_toml(tmp_path: Path) -> Path:
    """The config of a small pocket run; without `--set run.out=...` it writes into its folder."""
    path = tmp_path / "pocket.toml"
    path.write_text(POCKET.replace("[run]", f'[run]\nout = "{tmp_path / "run"}"'))
    return path


@pytest.fixture
def pocket(pocket_toml: Path, registry: Registry) -> Build:
    """Builds a small pocket run: `pocket("run.steps=2", trains=False)`."""

    def build(*overrides: str, trains: bool = True, plugin: Path | None = None) -> Run:
        found = registry if plugin is None else Registry.load([plugin])
        return assemble(load_config(pocket_toml, overrides), found, trains)

    return build
