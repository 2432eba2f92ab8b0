"""Checks of the plug-ins that play the roles: validators, correctors, verifiers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable

from hypothesis import strategies as st

from rti.errors import NoCorrection
from rti.interfaces import Corrector, Validator, Verifier
from rti.testing import strategies
from rti.testing._contract import check_ids, for_all, is_a, that
from rti.testing.strategies import Case
from rti.types import Correction, Diagnosis, Message, Verdict


def check_validator(
    validator: Validator, *, cases: st.SearchStrategy[Case] | None = None, examples: int = 25
) -> None:
    """The contract of a Validator: a Diagnosis for any turn, executed or not; input unchanged.

    Args:
        validator: already bound, if it needs a run's context.
        cases: what to ask it about, where words and token ids must be of a certain kind.
        examples: how many.

    Raises:
        AssertionError: says what broke.
    """

    async def check(case: Case) -> None:
        diagnosis = await validator.validate(case.draft, case.history, case.evidence)
        is_a(diagnosis, Diagnosis, "validate")
        is_a(diagnosis.harmful, bool, "Diagnosis.harmful")
        that(
            not diagnosis.harmful or diagnosis.parsed,
            "an answer that made no sense (parsed = False) must not count as harmful",
        )

    _for_all_cases("validate", cases, check, examples)


def check_corrector(
    corrector: Corrector, *, cases: st.SearchStrategy[Case] | None = None, examples: int = 25
) -> None:
    """The contract of a Corrector: a Correction marked as one, or none; input unchanged.

    Args:
        corrector: already bound, if it needs a run's context.
        cases: what to ask it about, where words and token ids must be of a certain kind.
        examples: how many.

    Raises:
        AssertionError: says what broke.
    """

    async def check(case: Case) -> None:
        try:
            correction = await corrector.correct(
                case.draft, case.diagnosis, case.history, case.history.tools
            )
        except NoCorrection:
            return
        if correction is None:
            return
        is_a(correction, Correction, "correct")
        check_ids(correction.completion_ids, "Correction.completion_ids")
        if correction.corrector_prompt_ids is not None:
            check_ids(correction.corrector_prompt_ids, "Correction.corrector_prompt_ids")
        is_a(correction.message, Message, "Correction.message")
        that(
            correction.message.role == "assistant",
            f"Correction.message is by {correction.message.role!r}: must be the assistant's",
        )
        frozen_ids = correction.message.token_ids
        that(
            frozen_ids is None or tuple(frozen_ids) == correction.completion_ids,
            "Correction.message.token_ids are other ids than completion_ids",
        )
        that(
            correction.provenance.kind == "correction",
            "Correction.provenance.kind must be 'correction', or its tokens pass for the policy's",
        )

    _for_all_cases("correct", cases, check, examples)


def check_verifier(
    verifier: Verifier, *, cases: st.SearchStrategy[Case] | None = None, examples: int = 25
) -> None:
    """The contract of a Verifier: a Verdict for any correction; input unchanged.

    Args:
        verifier: already bound, if it needs a run's context.
        cases: what to ask it about, where words and token ids must be of a certain kind.
        examples: how many.

    Raises:
        AssertionError: says what broke.
    """

    async def check(case: Case) -> None:
        verdict = await verifier.verify(
            case.correction, case.draft, case.history, case.evidence, case.privileged
        )
        is_a(verdict, Verdict, "verify")
        is_a(verdict.accepted, bool, "Verdict.accepted")
        that(
            not verdict.accepted or verdict.parsed,
            "an answer that made no sense (parsed = False) must not count as accepted",
        )

    _for_all_cases("verify", cases, check, examples)


def _for_all_cases(
    name: str,
    strategy: st.SearchStrategy[Case] | None,
    check: Callable[[Case], Awaitable[None]],
    examples: int,
) -> None:
    # One loop for all examples: a live policy may hold locks that belong to a loop.
    with asyncio.Runner() as runner:

        async def check_unchanged(case: Case) -> None:
            before = copy.deepcopy(case)
            await check(case)
            that(case == before, f"{name} changed its input")

        for_all(
            strategies.cases() if strategy is None else strategy,
            lambda case: runner.run(check_unchanged(case)),
            examples,
        )
