"""vLLM as the policy: any vLLM server, one started here, or in this process."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_vllm.policy import VllmPolicy


@hookimpl
def rti_policies() -> Mapping[str, Any]:
    """vLLM, behind HTTP or in this process."""
    return {"vllm": VllmPolicy}
