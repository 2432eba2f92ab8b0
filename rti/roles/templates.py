"""Role prompts as template files.

A file is TOML between two `---` lines, then the text. `mode` says how it becomes tokens:

- "continue": token ids of the rollout are spliced in at `[[history]]`, `[[draft]]` and
  `[[correction]]`, and the words between them are encoded as they stand. For grammars that put a
  role at the end of the conversation, as the pocket worlds do.
- "chat": the text is split at lines `# system` and `# user` into a conversation of its own.
  `[[history]]`, `[[draft]]`, `[[observations]]` and `[[correction]]` become fenced transcripts.

`{evidence}`, `{direction}`, `{kind}`, `{tools}` and `{fence}` are filled in. `answer` says how
the reply is read: "json", "words" (the first word decides: `yes` or `no`), or "turn" (raw tokens).
`thinking` is the rule for a thinking block in front of a corrected turn: "private" leaves it out of
the correction (it joins the corrector's prompt), "turn" keeps it as the turn's own, and "auto"
keeps it exactly when the draft had one too.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from rti.errors import ConfigError

PACKAGE = "rti.roles"
"""Where the role prompts lie that are shipped for models that follow instructions."""
ROLES = ("validator", "corrector", "verifier")
SPLICED = re.compile(r"\[\[(history|draft|observations|correction)\]\]")
_FIELD = re.compile(r"\{(evidence|direction|kind|tools|fence)\}")


@frozen
class Template:
    """One role prompt. `digest` names it in provenance."""

    role: str
    text: str
    digest: str
    mode: Literal["continue", "chat"] = "chat"
    answer: Literal["json", "words", "turn"] = "json"
    yes: str = ""
    no: str = ""
    max_new_tokens: int = 256
    thinking: Literal["auto", "private", "turn"] = "auto"

    def fill(self, fields: Mapping[str, str], text: str | None = None) -> str:
        """The text with `{…}` fields filled in, in one pass: no value is looked into again."""
        return _FIELD.sub(lambda m: fields.get(m.group(1), ""), self.text if text is None else text)

    def parts(self) -> list[tuple[str, str]]:
        """A chat template's messages: (role, text), in order."""
        pieces = re.split(r"^# (system|user)\s*$", self.text, flags=re.MULTILINE)[1:]
        return [(pieces[i], pieces[i + 1].strip()) for i in range(0, len(pieces), 2)]


def load_template(role: str, source: str = PACKAGE) -> Template:
    """The template of a role out of a folder, or out of a package's `prompts` folder.

    Raises:
        ConfigError: when there is no such template, or it cannot be used.
    """
    place = _place(source)
    file = place.joinpath(f"{role}.txt")
    try:
        raw = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"[{role}] prompts = {source!r}: no readable {role}.txt in there ({error}). A folder "
            f"of prompts holds {', '.join(f'{r}.txt' for r in ROLES)}."
        ) from error
    found = re.match(r"---\n(.*?)\n---\n(.*)", raw, flags=re.DOTALL)
    if found is None:
        raise ConfigError(f"{file}: must begin with options between two lines of '---'.")
    try:
        options: dict[str, Any] = tomllib.loads(found.group(1))
        template = Template(
            role=role,
            text=found.group(2).strip(),
            digest=hashlib.sha256(raw.encode()).hexdigest()[:16],
            **options,
        )
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ConfigError(
            f"{file}: {error}. Known options: mode, answer, yes, no, max_new_tokens, thinking."
        ) from error
    problem = _problem(template)
    if problem:
        raise ConfigError(f"{file}: {problem}")
    return template


def _problem(template: Template) -> str:
    for name, kind in (("yes", str), ("no", str), ("max_new_tokens", int)):
        value = getattr(template, name)
        if type(value) is not kind:
            return f"{name} = {value!r}: must be of type {kind.__name__}"
    if template.mode not in ("continue", "chat"):
        return f"mode = {template.mode!r}: must be 'continue' or 'chat'"
    if template.thinking not in ("auto", "private", "turn"):
        return f"thinking = {template.thinking!r}: must be 'auto', 'private' or 'turn'"
    wanted = ("turn",) if template.role == "corrector" else ("json", "words")
    if template.answer not in wanted:
        return f"answer = {template.answer!r}: for a {template.role} it must be in {wanted}"
    if template.answer == "words" and not (template.yes and template.no):
        return "answer = 'words' needs the words `yes` and `no`"
    if template.mode == "continue" and "[[observations]]" in template.text:
        return "[[observations]] is for chat templates: a rollout's tokens hold no such piece"
    if template.mode == "chat" and not template.parts():
        return "a chat template needs a line '# user' (and usually '# system')"
    if template.max_new_tokens < 1:
        return f"max_new_tokens = {template.max_new_tokens}: must be at least 1"
    return ""


def _place(source: str) -> Traversable:
    folder = Path(source)
    if folder.is_dir():
        return folder
    try:
        return resources.files(source).joinpath("prompts")
    except (ImportError, TypeError, ValueError) as error:  # "./gone" is a TypeError, a module too
        raise ConfigError(
            f"prompts = {source!r} is neither a folder nor a package with a prompts folder."
        ) from error


def prompts_source(prompts: str, environment: Any) -> str:
    """Where a role's template comes from: the option, the environment's own, or those shipped."""
    return prompts or getattr(environment, "prompts", "") or PACKAGE
