"""Rules that read what an environment declares in `Evidence.facts`; silent where it is absent.

    facts["rubrics"] = [{"name": "wifi calling is off", "met": False, "by_turn": 3,
                         "hint": "Settle the calling setup before you go on."}]
    facts["exact_match"] = {"name": "东涌广场", "search": ["find_place"], "commit": ["navigate"]}
    facts["handoff"] = {"tools": ["transfer_to_human_agents"], "allowed": False}
    facts["directions"] = {"no-exact-match": "Search again, this time with the city."}

`rubrics`: what success needs, and whether the rollout met it. `by_turn` is the index of the turn
that should have settled it or that spoiled it; a rubric without one blames no turn. `hint`, if
given, becomes the direction: it reaches the Corrector, so it must not tell the answer.
`exact_match`: the name that the user asked for, the tools that look it up, and those that commit to
one result. Declare it only where nothing but an exact match succeeds.
`handoff`: the tools that give the case away, and whether the task can succeed that way.
`directions`: by kind of diagnosis, how this environment words the direction (`{tool}` in that of
foreign-tool is the tool). It reaches the Corrector, so it must not tell the answer either.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from rti import Diagnosis, Evidence, History, Message, PluginError, Turn
from rti_rubric.rules import rule, worded


@rule("unmet-rubric")
def unmet_rubric(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
    """The first rubric that is not met and that this turn is to blame for (`by_turn`)."""
    rubrics = evidence.facts.get("rubrics", ())
    if not isinstance(rubrics, Sequence) or isinstance(rubrics, str):
        raise _wrong("rubrics", "a list of {name, met, by_turn, hint}", rubrics)
    for rubric in rubrics:
        if not isinstance(rubric, Mapping) or not isinstance(rubric.get("met"), bool):
            raise _wrong("rubrics", "a list of {name, met: true or false, by_turn, hint}", rubric)
        if rubric["met"] or rubric.get("by_turn") != turn.index:
            continue
        hint = str(rubric.get("hint") or "").strip()
        return Diagnosis(
            True,
            "unmet-rubric",
            hint
            or "This turn leaves open something that success needs: settle it before going on.",
        )
    return None


@rule("no-exact-match")
def no_exact_match(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
    """Commits to a search result though the last search found nothing of the wanted name.

    The name counts as found wherever it stands in the results, even inside a longer one: better to
    miss a wrong pick than to flag a right one. A search that failed or gave nothing is not judged.
    """
    wanted = evidence.facts.get("exact_match")
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping) or not str(wanted.get("name") or "").strip():
        raise _wrong("exact_match", "{name, search, commit}", wanted)
    search, commit = (
        _names("exact_match", wanted, "search"),
        _names("exact_match", wanted, "commit"),
    )
    if not any(call.name in commit for call in turn.message.tool_calls):
        return None
    found = _last_results(history.messages, search)
    if not found or _folded(str(wanted["name"])) in _folded(found):
        return None
    return Diagnosis(
        True,
        "no-exact-match",
        worded(
            evidence,
            "no-exact-match",
            "No result bears exactly the name that the user asked for: take none of them, search "
            "again with more of what the user said, or ask.",
        ),
    )


@rule("premature-handoff")
def premature_handoff(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
    """Hands the case over where the environment says that this cannot succeed."""
    handoff = evidence.facts.get("handoff")
    if handoff is None:
        return None
    if not isinstance(handoff, Mapping) or not isinstance(handoff.get("allowed"), bool):
        raise _wrong("handoff", "{tools, allowed: true or false}", handoff)
    tools = _names("handoff", handoff, "tools")
    if handoff["allowed"] or not any(call.name in tools for call in turn.message.tool_calls):
        return None
    return Diagnosis(
        True,
        "premature-handoff",
        worded(
            evidence,
            "premature-handoff",
            "Do not hand over: it can be solved from here. Take the next step that is still open.",
        ),
    )


def _last_results(messages: Sequence[Message], search: Sequence[str]) -> str:
    """What the latest search of the conversation returned; empty if it failed or returned nothing.

    Call ids start anew in every turn, so an answer belongs to the turn right before it.
    """
    for position in range(len(messages) - 1, -1, -1):
        ids = [c.id for c in messages[position].tool_calls if c.name in search]
        if not ids:
            continue
        texts: list[str] = []
        for answer in messages[position + 1 :]:
            if answer.role == "assistant":
                break
            if answer.role == "tool" and answer.tool_call_id in (None, *ids) and not answer.error:
                texts.append(answer.content)
        return "\n".join(texts).strip()
    return ""


def _folded(text: str) -> str:
    """Text in which only letters and digits count, for comparing names."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if c.isalnum())


def _names(fact: str, given: Mapping[str, Any], key: str) -> list[str]:
    names = given.get(key)
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
        raise _wrong(fact, f"a mapping whose {key!r} is a list of tool names", given)
    return list(names)


def _wrong(fact: str, wanted: str, given: object) -> PluginError:
    return PluginError(
        f"[validator] rubric: the environment's evidence.facts[{fact!r}] must be {wanted}, not "
        f"{given!r}. Put it right there, or leave the rule out of validator.rules"
    )
