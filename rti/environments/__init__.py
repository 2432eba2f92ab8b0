"""What an environment of your own can be built on: see docs/environments/your-own.md."""

from rti.environments.simple import SimpleEnvironment, SimpleSession

__all__ = ["SimpleEnvironment", "SimpleSession"]
