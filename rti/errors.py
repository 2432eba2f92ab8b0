"""Every error `rti` raises on purpose, under one root.

The message of each names the section, the value and the way out. `ConfigError` and
`PluginError` are the user's to fix (exit code 2); `RunError` means the run itself failed (1).
"""

from __future__ import annotations


class RtiError(Exception):
    """Root of all errors raised on purpose by `rti` and its plug-ins."""


class ConfigError(RtiError):
    """A config file, an override or a command line that cannot be used as it is."""


class PluginError(RtiError):
    """A plug-in that is missing, broken, or clashes with another one."""


class RunError(RtiError):
    """A run that cannot go on."""


class NumericsError(RtiError):
    """NaN, infinite, empty or misshapen input to the maths: never a silent 0."""


class StaleVersionError(RtiError):
    """Scoring was asked of another policy version than the one that sampled the draft."""


class InfrastructureError(RtiError):
    """A fault outside the policy: server down, timeout, environment crash.

    A rollout that meets one is retried, then dropped and counted. It is never rewarded 0 and
    never a reason to intervene.
    """


class NoCorrection(RtiError):
    """A Corrector has nothing to offer. The message is the kind of reason, counted by it."""


class CannotFork(RtiError):
    """The environment cannot go back to the state before the asked turn."""


class NoReference(RtiError):
    """A reference agent knows nothing of the task that it is to play."""
