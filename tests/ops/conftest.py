"""Hypothesis without a deadline: torch's first call is slow, and machines are shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ops", deadline=None)
settings.load_profile("ops")
