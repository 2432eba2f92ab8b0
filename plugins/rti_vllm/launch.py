"""How vLLM is started: the command line of a server, the arguments of an engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from attrs import frozen

from rti_vllm.installed import Found

HOST = "127.0.0.1"
SERVED_NAME = "rti"


@frozen
class Launch:
    """How a server is started. `arguments` come last, so that they overrule the rest."""

    python: str
    port: int
    dtype: str
    threads: int
    devices: str
    kv_cache_gb: float
    max_model_len: int
    max_num_seqs: int
    gpu_memory_utilization: float
    enforce_eager: bool | None
    sleep: bool
    startup_timeout_s: float
    arguments: tuple[str, ...]

    def eager(self, found: Found) -> bool:
        """Whether the model stays uncompiled: compiling it takes minutes on a CPU."""
        return found.on_cpu if self.enforce_eager is None else self.enforce_eager

    def command(self, model: Path, port: int, found: Found) -> list[str]:
        """The command line. Loopback only: the endpoints that load weights ask for no key."""
        given: dict[str, object] = {
            "--model": model,
            "--served-model-name": SERVED_NAME,
            "--host": HOST,
            "--port": port,
            "--dtype": self.dtype,
            "--logprobs-mode": "raw_logprobs",
            "--generation-config": "vllm",
            "--max-num-seqs": self.max_num_seqs,
        }
        if self.max_model_len:
            given["--max-model-len"] = self.max_model_len
        if self.gpu_memory_utilization and not found.on_cpu:
            given["--gpu-memory-utilization"] = self.gpu_memory_utilization
        flags = ["--enable-scale-out", "--enable-prompt-tokens-details"]
        flags += ["--disable-uvicorn-access-log"]
        # On a CPU a seeded request whose prompt is computed in pieces ends the whole engine
        # ("CPU Generator does not use offset", vLLM 0.32).
        flags += ["--no-enable-chunked-prefill"] * found.on_cpu
        flags += ["--enforce-eager"] * self.eager(found)
        flags += ["--enable-sleep-mode"] * (self.sleep and not found.on_cpu)
        return [
            self.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server",
            *(str(word) for pair in given.items() for word in pair), *flags, *self.arguments,
        ]  # fmt: skip

    def arguments_of_llm(self, found: Found) -> dict[str, Any]:
        """The same for `vllm.LLM` in this process; `arguments` are for a server alone."""
        given: dict[str, Any] = {
            "dtype": self.dtype,
            "logprobs_mode": "raw_logprobs",
            "generation_config": "vllm",
            "max_num_seqs": self.max_num_seqs,
            "enforce_eager": self.eager(found),
        }
        if self.max_model_len:
            given["max_model_len"] = self.max_model_len
        if found.on_cpu:
            given["enable_chunked_prefill"] = False  # as for a server
        else:
            if self.gpu_memory_utilization:
                given["gpu_memory_utilization"] = self.gpu_memory_utilization
            given["enable_sleep_mode"] = self.sleep
        return given

    def settings(self, found: Found) -> dict[str, str]:
        """Environment variables: no downloads, no reports home, weights may be loaded."""
        wanted = {
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": str(self.threads),
        }
        if found.on_cpu:
            wanted["VLLM_CPU_KVCACHE_SPACE"] = f"{self.kv_cache_gb:g}"
        if self.devices:
            wanted["CUDA_VISIBLE_DEVICES"] = self.devices
        return wanted
