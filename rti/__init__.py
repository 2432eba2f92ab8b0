"""`rti`: Rollout-Time Intervention for agentic LLM reinforcement learning.

Everything a plug-in author needs is importable from here; importing it pulls in no torch.
"""

from rti.errors import (
    CannotFork,
    ConfigError,
    InfrastructureError,
    NoCorrection,
    NoReference,
    NumericsError,
    PluginError,
    RtiError,
    RunError,
    StaleVersionError,
)
from rti.folders import model_folder
from rti.hookspecs import hookimpl
from rti.interfaces import (
    Context,
    Corrector,
    Environment,
    Gate,
    Objective,
    Policy,
    Renderer,
    Reporter,
    Session,
    Trainer,
    Trigger,
    Validator,
    Verifier,
    Weighter,
)
from rti.options import above, anything, at_least, between, finite, not_empty, one_of, option
from rti.types import (
    Batch,
    Completion,
    Correction,
    Decision,
    Diagnosis,
    Evidence,
    Floats,
    Group,
    History,
    Ids,
    Intervention,
    Message,
    Privileged,
    Provenance,
    RequestKey,
    Rollout,
    Sample,
    SamplingParams,
    Span,
    Spoken,
    Step,
    Task,
    Tool,
    ToolCall,
    Turn,
    Verdict,
)

__version__ = "0.1.0"

__all__ = [
    "Batch", "CannotFork", "Completion", "ConfigError", "Context", "Correction", "Corrector",
    "Decision", "Diagnosis", "Environment", "Evidence", "Floats", "Gate", "Group", "History",
    "Ids", "InfrastructureError", "Intervention", "Message", "NoCorrection", "NoReference",
    "NumericsError", "Objective",
    "PluginError", "Policy", "Privileged", "Provenance", "Renderer", "Reporter", "RequestKey",
    "Rollout", "RtiError", "RunError", "Sample", "SamplingParams", "Session", "Span",
    "Spoken", "StaleVersionError", "Step", "Task", "Tool", "ToolCall", "Trainer", "Trigger", "Turn",
    "Validator", "Verdict", "Verifier", "Weighter", "__version__", "above", "anything",
    "at_least", "between", "finite", "hookimpl", "model_folder", "not_empty", "one_of", "option",
]  # fmt: skip
