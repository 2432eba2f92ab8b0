"""A teacher behind an OpenAI-compatible endpoint plays the roles; or is itself evaluated."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_teacher.chat import ChatPolicy
from rti_teacher.roles import TeacherCorrector, TeacherValidator, TeacherVerifier


@hookimpl
def rti_validators() -> Mapping[str, Any]:
    """A teacher as Validator."""
    return {"teacher": TeacherValidator}


@hookimpl
def rti_correctors() -> Mapping[str, Any]:
    """A teacher as Corrector."""
    return {"teacher": TeacherCorrector}


@hookimpl
def rti_verifiers() -> Mapping[str, Any]:
    """A teacher as Verifier."""
    return {"teacher": TeacherVerifier}


@hookimpl
def rti_policies() -> Mapping[str, Any]:
    """A chat model as the policy, for `rti eval`."""
    return {"chat": ChatPolicy}
