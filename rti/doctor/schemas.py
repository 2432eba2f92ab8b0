"""Arguments that fit a tool's JSON schema, to see whether a renderer can write and read a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAIN = "some text"
ODD = 'two\nlines, "quoted" \\ and 東涌 é 🙂'
DEEPEST = 8


def arguments(schema: Mapping[str, Any], text: str = PLAIN) -> dict[str, Any]:
    """An object with every property of an object schema; strings without a format are `text`.

    Covers what tool schemas use: types, enum, const, default, examples, items, properties,
    anyOf/oneOf/allOf, local $ref, minimum, minItems. `pattern` and `format` are not followed:
    nothing here validates, a renderer only has to carry the value.
    """
    value = _value(schema, schema, text, 0)
    return value if isinstance(value, dict) else {}


def _value(schema: Any, root: Mapping[str, Any], text: str, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return text
    if "$ref" in schema:
        return _value(_target(schema["$ref"], root), root, text, depth + 1)
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            wanted = [
                o for o in options if not (isinstance(o, Mapping) and o.get("type") == "null")
            ]
            return _value((wanted or options)[0], root, text, depth + 1)
    return _of_type(schema, root, text, depth)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any], text: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    low = schema.get("minimum", 1)
    if kind == "integer":
        return int(low)
    if kind == "number":
        return float(low) + 0.5
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    if kind == "array":
        number = max(1, int(schema.get("minItems", 1)))
        return [_value(schema.get("items", {}), root, text, depth + 1)] * number
    if kind == "object":
        inner = schema.get("properties")
        inner = inner if isinstance(inner, Mapping) else {}
        return {name: _value(each, root, text, depth + 1) for name, each in inner.items()}
    return text


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    """What a local reference such as `#/$defs/Address` points to; {} where it points nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    found: Any = root
    for step in reference.lstrip("#/").split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if not step:
            continue
        if not isinstance(found, Mapping) or step not in found:
            return {}
        found = found[step]
    return found
