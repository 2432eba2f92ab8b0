"""Data as JSON text that may stand inside a page's `<script>`."""

from __future__ import annotations

import json
from typing import Any

# No `<`, so that no text can close the element or open a comment; `>` and `&` for readers that are
# laxer than the standard; the two line breaks of Unicode, which old JavaScript has no strings with.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def embed(value: Any) -> str:
    """Strict JSON, escaped, fit for UTF-8: half a surrogate pair becomes its JSON escape.

    Raises:
        ValueError: for NaN and infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode("utf-8")


def size(value: Any) -> int:
    """Bytes that a value takes in the page."""
    return len(embed(value).encode("utf-8"))
