"""The page: one file with its style, scripts and data inside, and a policy that allows no more."""

from __future__ import annotations

import base64
import hashlib
import html
from importlib import resources
from string import Template
from typing import Any

from rti.report.embed import embed

LIMIT = 3_000_000
"""Bytes that a page stays under."""
TRANSCRIPTS = 2_000_000
"""Most bytes of transcripts in it."""

STYLES = ("uPlot.min.css", "figures.css", "transcripts.css", "page.css")
SCRIPTS = (
    "dom.js",
    "theme.js",
    "plots.js",
    "sections.js",
    "curves.js",
    "interventions.js",
    "card.js",
    "transcripts.js",
    "start.js",
)
LIBRARY = "uPlot.iife.min.js"


def page(data: dict[str, Any]) -> str:
    """The HTML. Data stands in it as escaped JSON; only scripts put it on the screen, as text."""
    style = "\n".join(_asset(name) for name in STYLES)
    # One scope for the page's own scripts; the library is a script of its own, as it came.
    script = "\n".join(['"use strict";(() => {', *map(_asset, SCRIPTS), "})();"])
    library = _asset(LIBRARY)
    policy = (
        "default-src 'none'; "
        f"script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    title = f"{data['title']} – rti report".encode("utf-8", "backslashreplace").decode("utf-8")
    return Template(_asset("page.html")).substitute(
        policy=html.escape(policy),
        title=html.escape(title),
        style=style,
        data=embed(data),
        library=library,
        script=script,
        licence=html.escape(_asset("uPlot.LICENSE.txt")),
    )


def _asset(name: str) -> str:
    return (resources.files("rti.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The CSP source of an inline script or style: https://www.w3.org/TR/CSP3/#external-hash."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
