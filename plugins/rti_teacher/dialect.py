"""What an endpoint does not understand, found out once and left out from then on.

Everything beyond model and prompt is an option somewhere: newer OpenAI models refuse `max_tokens`
and temperatures, servers without a grammar backend refuse schemas, others seeds or tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from rti_teacher.faults import Fault

SEED_BITS = 31
"""Seeds are cut down to what every server takes."""

_NAMED: Mapping[str, str] = {
    "max_tokens": r"max_tokens",
    "seed": r"\bseed\b",
    "schema": r"response_format|json_schema|schema|structured|guided|grammar",
    "tools": r"\btools?\b|tool_choice|tool-call|--jinja|function.?call",
    "temperature": r"\btemperature\b",
    "top_p": r"\btop_p\b",
    "stop": r"\bstop\b",
}
_SENT_AS = {"schema": "response_format"}
_UNABLE = re.compile(r"not supported|unsupported|not implemented|requires|does not support")


@define
class Dialect:
    """Per model and path: what is left out of requests."""

    _without: dict[tuple[str, str], set[str]] = field(init=False, factory=dict)

    def lacks(self, path: str, model: str, feature: str) -> bool:
        """Whether it is known to refuse a feature."""
        return feature in self._without.get((path, model), ())

    def body(
        self, path: str, model: str, asked: Mapping[str, Any], seed: int | None, schema: str,
        max_tokens: int,
    ) -> dict[str, Any]:  # fmt: skip
        """A request in the endpoint's own words.

        Temperature and top_p are said outright, 1 unless asked otherwise: some servers have
        defaults of their own.
        """
        without = self._without.get((path, model), set())
        limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
        body = {
            "model": model, "temperature": 1.0, "top_p": 1.0, **asked, limit: max_tokens
        }  # fmt: skip
        if seed is not None:
            body["seed"] = seed & ((1 << SEED_BITS) - 1)
        if schema and "schema" not in without:
            shape = json.loads(schema)
            if "bounds" in without:
                shape = _unbounded(shape)
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": shape, "strict": True},
            }
        for feature in without - {"schema", "max_tokens", "bounds"}:
            body.pop(feature, None)
        return body

    def adapt(
        self,
        path: str,
        model: str,
        sent: Mapping[str, Any],
        fault: Fault,
        needs: tuple[str, ...] = (),
    ) -> str:
        """Leave out what a refusal names, and say so; "" when it names nothing that was sent.

        What `needs` lists stays, whatever is said of it.
        """
        words = f"{fault.param} {fault.what}".lower()
        unable = fault.status in (500, 501) and _UNABLE.search(words)
        if fault.kind != "refused" and not unable:
            return ""
        without = self._without.setdefault((path, model), set())
        # What the server itself names as the culprit goes first.
        for text in filter(None, (fault.param.lower(), words)):
            for feature, pattern in _NAMED.items():
                if _SENT_AS.get(feature, feature) not in sent or feature in needs:
                    continue
                if not re.search(pattern, text):
                    continue
                if feature == "schema" and "maxLength" in json.dumps(sent["response_format"]):
                    without.add("bounds")  # some grammars know no length limits: one more try
                    return "refuses the schema of an answer: sent without its lengths from now on"
                without.add(feature)
                if feature == "max_tokens":
                    return "wants max_completion_tokens for max_tokens"
                return f"refuses {_SENT_AS.get(feature, feature)}: left out from now on"
        return ""


def _unbounded(shape: Any) -> Any:
    if isinstance(shape, Mapping):
        return {k: _unbounded(v) for k, v in shape.items() if k != "maxLength"}
    return shape
