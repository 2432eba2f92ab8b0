"""The options of the vLLM policy, and what they mean for a server or an engine started here."""

from __future__ import annotations

from typing import ClassVar, Literal

from attrs import define

from rti import Context, above, anything, at_least, between, one_of, option
from rti_vllm.launch import Launch


def _web(urls: list[str]) -> str | None:
    right = all(url.startswith(("http://", "https://")) for url in urls)
    return None if right else "a list of URLs like http://127.0.0.1:8000"


def _port(value: int) -> str | None:
    return None if 0 <= value < 65536 else "a port, or 0 for any free one"


@define
class Settings:
    """What `[policy]` may say."""

    extra: ClassVar[str] = "vllm-client"

    mode: Literal["server", "local"] = option(
        "server", "Servers over HTTP, or an engine in this process.", one_of("server", "local")
    )
    base_urls: list[str] = option(
        [], "Servers to use, e.g. http://127.0.0.1:8000; empty: start one here.", _web
    )
    served_model: str = option(
        "", "The model's name on these servers; empty: the first they list.", anything
    )
    timeout_s: float = option(600.0, "Seconds one try of a request may take.", above(0))
    retries: int = option(3, "Further tries after a fault that may pass.", at_least(0))
    connections: int = option(256, "Most requests under way together, a server.", at_least(1))
    score_cached: bool = option(
        True,
        "Score on top of the prefix cache where vLLM can, instead of computing the prompt again.",
        anything,
    )
    sleep_mode: bool = option(
        False, "Free the GPU during the update (vLLM's sleep mode, CUDA only).", anything
    )
    weights_dir: str = option(
        "",
        "Folder for the weights on their way to servers, which must see it under the same path; "
        "empty: in the run's folder.",
        anything,
    )
    python: str = option(
        "", "The Python that has vLLM, for a server started here; empty: this one.", anything
    )
    port: int = option(0, "Port of a server started here; 0: any free one.", _port)
    devices: str = option(
        "", "CUDA_VISIBLE_DEVICES of a server started here; empty: as this process.", anything
    )
    arguments: list[str] = option(
        [], "More arguments for a server started here, as on vLLM's command line.", anything
    )
    startup_timeout_s: float = option(900.0, "Seconds a server may take to start.", above(0))
    max_restarts: int = option(3, "How often a server that died is started again.", at_least(0))
    max_model_len: int = option(
        0, "Most tokens of prompt and completion; 0: what the model allows.", at_least(0)
    )
    max_num_seqs: int = option(64, "Most sequences vLLM computes together.", at_least(1))
    kv_cache_gb: float = option(1.0, "Gigabytes of keys and values on a CPU.", above(0))
    gpu_memory_utilization: float = option(
        0.0, "Part of the GPU's memory that vLLM takes; 0: vLLM's own default.", between(0, 1)
    )
    enforce_eager: bool | None = option(
        None,
        "Do not compile the model: starts faster, runs slower; not given: so on a CPU alone.",
        anything,
    )

    def launch(self, context: Context) -> Launch:
        """How vLLM is started."""
        return Launch(
            python=self.python,
            port=self.port,
            dtype=context.model.dtype,
            threads=context.model.threads,
            devices=self.devices,
            kv_cache_gb=self.kv_cache_gb,
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            gpu_memory_utilization=self.gpu_memory_utilization,
            enforce_eager=self.enforce_eager,
            sleep=self.sleep_mode,
            startup_timeout_s=self.startup_timeout_s,
            arguments=tuple(self.arguments),
        )
