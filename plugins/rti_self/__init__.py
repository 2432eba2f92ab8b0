"""Self-intervention: the policy diagnoses, corrects and verifies its own turns."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_self.roles import SelfCorrector, SelfValidator, SelfVerifier


@hookimpl
def rti_validators() -> Mapping[str, Any]:
    """The policy as Validator."""
    return {"self": SelfValidator}


@hookimpl
def rti_correctors() -> Mapping[str, Any]:
    """The policy as Corrector."""
    return {"self": SelfCorrector}


@hookimpl
def rti_verifiers() -> Mapping[str, Any]:
    """The policy as Verifier."""
    return {"self": SelfVerifier}
