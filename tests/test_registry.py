"""The registry, over real entry points of distributions laid out on `sys.path`."""

from __future__ import annotations

import asyncio
import sys
from inspect import getclosurevars
from typing import Any, Literal

import attrs
import pytest
from attrs import frozen
from fake_distributions import gate, install

from rti import ConfigError, PluginError, anything, hookspecs, option
from rti.config import CORE_SECTIONS, PLUGIN_SECTIONS, PluginSection, load_config
from rti.convert import construct, option_types
from rti.options import options_of
from rti.registry import KINDS, Registry


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def plugin(registry, name):
    (found,) = [p for p in registry.plugins if p.name == name]
    return found


def error_of(site, source, name="bad_one"):
    """What is wrong with a plug-in, next to a good one that must not suffer."""
    install(site, "rti-bad", {name: source})
    install(site, "rti-good", {"good_one": gate("good")})
    registry = Registry.load()
    assert plugin(registry, "good_one").status == "ok"
    assert "good" in registry.names("gate")
    bad = plugin(registry, name)
    assert (bad.status, bad.distribution, bad.version) == ("broken", "rti-bad", "1.2")
    return bad.error


def test_an_entry_point_is_found_listed_and_built(site):
    install(
        site, "rti-lengths", {"lengths_mod": gate("at-most")}, points={"lengths": "lengths_mod"}
    )
    registry = Registry.load()
    entry = registry.entry("gate", "at-most")
    assert (entry.kind, entry.name, entry.status, entry.error) == ("gate", "at-most", "ok", "")
    assert "at-most" in registry.names("gate")
    assert registry.provenance("gate", "at-most") == ("lengths", "rti-lengths", "1.2")
    built = registry.build(PluginSection("gate", "at-most", {"tokens": 3, "factor": 2}))
    assert type(built) is registry.get("gate", "at-most")
    assert (built.tokens, built.factor, type(built.factor)) == (3, 2.0, float)
    assert registry.resolve(PluginSection("gate", "at-most", {"tokens": 3})).options == {
        "tokens": 3,
        "factor": 1.0,
    }


def test_an_installed_copy_further_down_the_path_is_not_loaded_twice(site, tmp_path, monkeypatch):
    install(site, "rti-lengths", {"twice": gate("twice-gate")}, version="2.0")
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(below)])
    install(below, "rti_lengths", {"twice": gate("twice-gate")}, version="1.0")
    assert plugin(Registry.load(), "twice").version == "2.0"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("import no_such_engine", "ModuleNotFoundError: No module named 'no_such_engine'"),
        ("1 / 0", "ZeroDivisionError: division by zero (bad_one.py, line 1)"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "it implements no hook"),
        (gate("g").replace("rti_gates", "rti_gate"), "'rti_gate' is no hook. Did you mean 'rti_g"),
        (gate("g").replace("@hookimpl\n", ""), "rti_gates is not marked: put @hookimpl above it"),
        (gate("g").replace("rti_gates()", "rti_gates(extra)"), "hooks take no arguments"),
        (gate("g").replace("def rti_g", "async def rti_g"), "rti_gates is async: hooks are sync"),
        (gate("g").replace('return {"g": AtMost}', "1 / 0"), "ZeroDivisionError: division by zero"),
        (gate("g").replace('{"g": AtMost}', "[AtMost]"), "wanted a mapping of names to classes"),
        (gate("g").replace('{"g": AtMost}', "{3: AtMost}"), "wanted a mapping of names to classes"),
        (gate("g").replace('{"g": AtMost}', '{"g": 3}'), "gate 'g' is 3: wanted an attrs class"),
        (gate("g").replace("@frozen", ""), "wanted an attrs class"),
        (
            gate("g")
            .replace('{"g": AtMost}', '{"g": Derived}')
            .replace(
                "@hookimpl",
                "class Derived(AtMost):\n    more: int = option(1, 'More.')\n\n@hookimpl",
            ),
            "gate 'g' (Derived) has options: put @define above the class",
        ),
        (gate("g").replace("def admit", "def admits"), "lacks the method admit"),
        (gate("g").replace("tokens: int", "tokens: set"), "options cannot have the type set"),
        (gate("g").replace("tokens: int", "tokens: Gone"), "name 'Gone' is not defined"),
        (gate("g").replace("tokens: int", "use: str"), "has an option 'use'"),
    ],
)
def test_a_plugin_that_misbehaves_is_broken_and_stops_nothing_else(site, source, wanted):
    assert wanted in error_of(site, source)


def test_entry_points_that_do_not_parse_break_their_distribution_alone(site):
    install(site, "rti-odd", {}, raw_entry_points="[rti]\nthis is no entry point\n")
    install(site, "rti-good", {"good_one": gate("good")})
    registry = Registry.load()
    assert "good" in registry.names("gate")
    assert "entry_points.txt does not parse" in plugin(registry, "rti-odd").error


def test_a_broken_plugin_is_named_when_the_config_names_it(site):
    source = gate("wanted") + "\n@hookimpl\ndef rti_correctors():\n    raise OSError('disk')\n"
    install(site, "rti-bad", {"half": source})
    install(site, "rti-gone", {"gone": "import no_such_engine"})
    registry = Registry.load()
    assert "wanted" not in registry.names("gate")
    with pytest.raises(PluginError, match=r"'half' of rti-bad 1.2, which is broken.*disk") as e:
        registry.build(PluginSection("gate", "wanted"))
    assert isinstance(e.value.__cause__, OSError)
    with pytest.raises(PluginError, match=r"'gone' of rti-gone 1.2 is broken, and may have it"):
        registry.get("gate", "whatever")


def test_one_name_from_two_distributions_is_refused_and_names_both(site):
    install(site, "rti-a", {"mod_a": gate("same", "A")})
    install(site, "rti-b", {"mod_b": gate("same", "B")})
    registry = Registry.load()
    assert {e.status for e in registry.entries if e.name == "same"} == {"clash"}
    assert "same" not in registry.names("gate")
    with pytest.raises(PluginError, match=r"'mod_a' of rti-a 1.2 and 'mod_b' of rti-b 1.2"):
        registry.get("gate", "same")
    without = Registry.load(blocked=["rti-b"])
    assert without.get("gate", "same").__name__ == "A"
    assert plugin(without, "mod_b").status == "blocked"


def test_one_name_for_two_kinds_is_no_clash(site):
    trigger = "\n@frozen\nclass T:\n    def fires(self, group):\n        return True\n"
    source = gate("both") + trigger + "\n@hookimpl\ndef rti_triggers():\n    return {'both': T}\n"
    install(site, "rti-both", {"both_mod": source})
    registry = Registry.load()
    assert registry.get("gate", "both") is not registry.get("trigger", "both")


def test_two_distributions_may_use_one_entry_point_name(site):
    install(site, "rti-a", {"mod_a": gate("from-a")}, points={"main": "mod_a"})
    install(site, "rti-b", {"mod_b": gate("from-b")}, points={"main": "mod_b"})
    names = Registry.load().names("gate")
    assert {"from-a", "from-b"} <= set(names)


def test_blocked_plugins_are_not_imported(site):
    marker = site / "imported"
    install(site, "rti-slow", {"slow_mod": f"open({str(marker)!r}, 'w')\n" + gate("slow-gate")})
    registry = Registry.load(blocked=["slow_mod"])
    assert not marker.exists()
    with pytest.raises(PluginError, match=r"'slow_mod' of rti-slow 1.2 is left out by --no-plugin"):
        registry.get("gate", "slow-gate")
    with pytest.raises(PluginError, match=r"no such plug-in\. Did you mean 'slow_mod'"):
        Registry.load(blocked=["slow_mode"])


def test_unknown_names_say_what_exists(site):
    install(site, "rti-lengths", {"lengths": gate("at-most")})
    registry = Registry.load()
    with pytest.raises(PluginError, match=r"no gate 'at-mos'. Did you mean 'at-most'\? There are:"):
        registry.get("gate", "at-mos")
    with pytest.raises(PluginError, match=r"name of another kind: gate"):
        registry.get("trigger", "at-most")
    with pytest.raises(PluginError, match=r"no kind of plug-in 'gates'. Did you mean 'gate'"):
        registry.get("gates", "at-most")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"token": 3}, r"\[gate\] \(at-most\) has no option 'token'. Did you mean 'tokens'\?"),
        ({"tokens": "3"}, r"tokens = '3' is a string: wanted a whole number.*\n  tokens: Most tok"),
        ({"tokens": True}, r"tokens = True is true or false: wanted a whole number"),
        ({"tokens": 0}, r"tokens = 0: must be at least 1.\n  tokens: Most tokens."),
        ({"factor": float("nan")}, "factor = nan is NaN: wanted a number"),
        ({"seen": 3}, "has no option 'seen'"),
    ],
)
def test_options_are_refused_in_words(site, options, wanted):
    install(site, "rti-lengths", {"lengths": gate("at-most")})
    registry = Registry.load()
    for use in (registry.build, registry.resolve):
        with pytest.raises(ConfigError, match=wanted):
            use(PluginSection("gate", "at-most", options))


HEAVY = """
from typing import ClassVar
from attrs import define
from rti import hookimpl

@define
class Fast:
    extra: ClassVar[str] = "fast"

    def bind(self, context):
        import no_such_engine

    async def correct(self, draft, diagnosis, history, tools): ...

@define
class Faster(Fast):
    def __attrs_post_init__(self):
        import no_such_engine

@define
class Wrong(Fast):
    def __attrs_post_init__(self):
        raise KeyError("weights")

@define
class Picky(Fast):
    def __attrs_post_init__(self):
        raise ValueError("this and that do not go together")

@hookimpl
def rti_correctors():
    return {"fast": Fast, "faster": Faster, "wrong": Wrong, "picky": Picky}
"""


def test_a_missing_extra_says_the_pip_line(site):
    install(site, "rti-fast", {"fast_mod": HEAVY})
    registry = Registry.load()
    with pytest.raises(PluginError, match=r"needs 'no_such_engine'.*install 'rti-fast\[fast\]'"):
        registry.build(PluginSection("corrector", "faster"))
    corrector = registry.build(PluginSection("corrector", "fast"))
    with (
        pytest.raises(PluginError, match=r"corrector 'fast' \(plug-in 'fast_mod' of rti-fast 1.2"),
        registry.guard(corrector),
    ):
        corrector.bind(None)


def test_a_plugin_that_fails_to_build_is_named(site):
    install(site, "rti-fast", {"fast_mod": HEAVY})
    registry = Registry.load()
    with pytest.raises(PluginError, match=r"'wrong' .*rti-fast 1.2\) failed: KeyError: 'weights'"):
        registry.build(PluginSection("corrector", "wrong"))
    with pytest.raises(ConfigError, match=r"\[corrector\] \(picky\) this and that do not go"):
        registry.build(PluginSection("corrector", "picky"))


def test_a_single_file_is_a_plugin(tmp_path):
    file = tmp_path / "my-gate.py"
    file.write_text(gate("mine"))
    registry = Registry.load(files=[file, str(file)])
    name, distribution, version = registry.provenance("gate", "mine")
    assert (name, distribution) == ("my-gate", str(file))
    file.write_text(gate("mine") + "\n# changed\n")
    changed = Registry.load(files=[file])
    assert changed.provenance("gate", "mine").version != version
    assert changed.build(PluginSection("gate", "mine", {"tokens": 2})).tokens == 2


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, r"No such file or directory. Give the path of a Python file."),
        ("import no_such_engine", r"No module named 'no_such_engine'"),
        ("def rti_gates(:", r"SyntaxError"),
        ("x = 1", r"it implements no hook"),
    ],
)
def test_a_single_file_that_cannot_be_used_is_an_error(tmp_path, content, wanted):
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PluginError, match=r"--plugin .*mine\.py: .*" + wanted):
        Registry.load(files=[file])


def test_a_command_cannot_take_the_name_of_a_built_in_one(site):
    source = (
        "from rti import hookimpl\n\n@hookimpl\ndef rti_commands():\n    return {'train': print}"
    )
    install(site, "rti-cmd", {"cmd_mod": source})
    with pytest.raises(PluginError, match="has the name of a built-in command"):
        Registry.load().get("command", "train")


def test_every_hook_has_a_kind_and_every_section_a_kind():
    hooks = {n for n in vars(hookspecs) if n.startswith("rti_")}
    assert hooks == {kind.hook for kind in KINDS.values()}
    kinds = {name: slot["kind"] for name, slot in PLUGIN_SECTIONS.items()}
    assert set(kinds.values()) == set(KINDS) - {"command"}
    assert {name for name, kind in kinds.items() if name != kind} == {"veto"}


def built_in_classes():
    return {(e.kind, e.name): e.cls for e in Registry.load().entries if isinstance(e.cls, type)}


def test_the_built_in_plugins_work():
    assert [p for p in Registry.load().plugins if p.distribution == "rti-rl" and p.error] == []


def test_the_defaults_of_the_config_exist():
    registry = Registry.load()
    for section in load_config(None, ["environment.use=pocket"]).plugin_sections():
        assert registry.get(section.kind, section.use)


def test_every_option_has_a_docstring_a_type_and_a_check():
    classes = {("core", name): cls for name, cls in CORE_SECTIONS.items()} | built_in_classes()
    for (kind, name), cls in classes.items():
        wanted = option_types(cls)
        for key, attribute in options_of(cls).items():
            where = f"{kind} {name}.{key}"
            assert attribute.metadata["doc"].strip().endswith((".", ")", "?")), where
            assert key in wanted, where
            assert getclosurevars(attribute.validator).nonlocals["checks"], where
        for attribute in attrs.fields(cls):
            # What may be given at construction is an option: nothing goes unchecked.
            assert not attribute.init or attribute.metadata.get("rti_option"), f"{kind} {name}"


@frozen
class Many:
    mode: Literal["a", "b"] = option("a", "A word.", anything)
    names: list[str] = option([], "Names.", anything)
    shape: tuple[int, ...] = option((), "Sizes.", anything)
    counts: dict[str, int] = option({}, "Counts.", anything)
    limit: float | None = option(None, "A limit.", anything)
    rest: dict[str, Any] = option({}, "Whatever.", anything)


def test_an_option_of_every_type_is_converted():
    built = construct(
        Many,
        {"mode": "b", "names": ["x"], "shape": [1, 2], "counts": {"a": 1}, "limit": 3},
        "[many]",
    )
    assert (built.mode, built.names, built.shape) == ("b", ["x"], (1, 2))
    assert (built.counts, built.limit, built.rest) == ({"a": 1}, 3.0, {})
    for name, value in {
        "mode": "c",
        "names": ["x", 1],
        "shape": [1.0],
        "counts": {"a": True},
        "limit": "3",
        "rest": [],
    }.items():
        with pytest.raises(ConfigError, match=rf"\[many\] {name} = .*: wanted "):
            construct(Many, {name: value}, "[many]")


def test_building_needs_no_running_loop(site):
    install(site, "rti-lengths", {"lengths": gate("at-most")})

    async def inside():
        return Registry.load().build(PluginSection("gate", "at-most"))

    assert asyncio.run(inside()).tokens == 64
