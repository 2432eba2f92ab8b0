"""The documentation is run: Python blocks are executed, commands and configs are checked."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra hf")

from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from rti.cli import _globals, _parser
from rti.config import dump_config, load_config
from rti.registry import Registry

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("contrib/*/README.md")])
ECHO = ROOT / "contrib" / "rti-echo" / "rti_echo.py"


def blocks(page: Path, language: str) -> list[str]:
    parser = CodeBlockParser(language=language, evaluator=lambda example: None)
    return [str(e.parsed) for e in Sybil(parsers=[parser]).parse(page)]


@pytest.fixture(scope="module")
def registry() -> Registry:
    installed = Registry.load()
    return installed if "echo" in installed.names("corrector") else Registry.load(files=[ECHO])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = blocks(page, "python")[:1]
    (tmp_path / "my_plugin.py").write_text("".join(first), encoding="utf-8")
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    for example in Sybil(parsers=[PythonCodeBlockParser()]).parse(page):
        example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_toml_blocks_are_configs(page: Path, registry: Registry, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        table = tomllib.loads(text)
        if "project" in table:
            continue  # a pyproject.toml
        named = {
            entry["use"]
            for section in table.values()
            for entry in (section if isinstance(section, list) else [section])
            if isinstance(entry, dict) and isinstance(entry.get("use"), str)
        }
        if not all(any(name in registry.names(k) for k in KINDS) for name in named):
            continue  # a plug-in that the page itself defines
        base = table.pop("extends", None)
        lines = [] if base is None else [f"extends = '{ROOT / 'recipes' / base}'"]
        if base is None and "environment" not in table:
            lines.append("environment.use = 'pocket'")
        body = re.sub(r"(?m)^extends = .*$", "", text)
        path = tmp_path / "block.toml"
        path.write_text("\n".join([*lines, body]), encoding="utf-8")
        dump_config(load_config(path), registry)  # every option exists and is valid


KINDS = ("validator", "corrector", "verifier", "gate", "weighter", "trigger", "environment",
         "renderer", "policy", "objective", "trainer", "reporter")  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_exist(page: Path, registry: Registry) -> None:
    commands = {e.name: e for e in registry.entries if e.kind == "command"}
    for text in blocks(page, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&", line):
                words = shlex.split(part, comments=True)
                if not words or Path(words[0]).name != "rti":
                    continue
                _, rest = _globals().parse_known_args(words[1:])
                args = _parser(rest[0], commands).parse_args(rest)
                config = getattr(args, "config", None)
                if config is not None and (ROOT / config).parent.name == "recipes":
                    sets = [s for s in args.set if not s.startswith("run.out")]
                    dump_config(load_config(ROOT / config, sets), registry)


def test_links_between_pages_and_files_exist() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
            if not target.startswith(("http:", "https:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_results_are_those_of_the_stored_comparisons() -> None:
    from rti_pocket.results import page

    assert page(ROOT / "docs/results") == (ROOT / "docs/results.md").read_text(encoding="utf-8")
