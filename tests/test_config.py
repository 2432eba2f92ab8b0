"""Config: layers, overrides, errors, and the way out to TOML and back."""

from __future__ import annotations

import datetime
import random
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest
import tomli_w
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import ConfigError, RtiError, anything, at_least, option
from rti.config import (
    _KEPT,
    CORE_SECTIONS,
    PLUGIN_SECTIONS,
    CheckpointConfig,
    Config,
    EvalConfig,
    InterventionConfig,
    ModelConfig,
    PluginSection,
    RolloutConfig,
    RunConfig,
    TeacherConfig,
    dump_config,
    load_config,
    reference,
    resolve_config,
)
from rti.convert import default_of
from rti.options import options_of
from rti.registry import Entry, Plugin, Registry

ENVIRONMENT = '[environment]\nuse = "desk"\n'


@pytest.fixture
def write(tmp_path):
    def write(text, name="run.toml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def section(kind, use, *, section="", **options):
    return PluginSection(kind, use, options, section=section or kind)


# Values


def test_defaults_are_those_of_the_design():
    config = load_config(None, ["environment.use=desk"])
    assert config == Config(section("environment", "desk"))
    assert (config.run, config.model) == (RunConfig(0, 50, "runs/run"), ModelConfig())
    assert (config.rollout.group_size, config.rollout.temperature) == (8, 1.0)
    assert config.trigger == section("trigger", "all-failed")
    assert config.gate == (section("gate", "perplexity"),)
    assert config.reporter == (section("reporter", "console"), section("reporter", "jsonl"))
    assert (config.repairs_per_group, config.eval_max_new_tokens) == (4, 256)


def test_a_file_is_read(write):
    config = load_config(
        write("""
        [run]
        seed = 7
        [rollout]
        group_size = 4
        timeout_s = inf
        families = {AH = 3, BH = 1}
        [intervention]
        repairs_per_group = 3
        [eval]
        families = ["AH"]
        temperature = 0
        [environment]
        use = "desk"
        noise = 0.5
        """)
    )
    assert (config.run.seed, config.rollout.group_size) == (7, 4)
    assert config.rollout.timeout_s == float("inf")
    assert (config.rollout.families, config.rollout.tasks_per_step) == ({"AH": 3, "BH": 1}, 4)
    assert config.repairs_per_group == 3
    assert config.eval.families == ("AH",)
    assert isinstance(config.eval.temperature, float)
    assert config.environment == section("environment", "desk", noise=0.5)


def test_a_byte_order_mark_is_no_trouble(write):
    assert load_config(write(b"\xef\xbb\xbf" + ENVIRONMENT.encode())).environment.use == "desk"


def test_several_plugins_by_names_or_by_tables(write):
    by_name = load_config(write(ENVIRONMENT + '[verifier]\nuse = ["self", "rubric"]\n'))
    assert by_name.verifier == (section("verifier", "self"), section("verifier", "rubric"))
    by_table = load_config(
        write(ENVIRONMENT + '[[gate]]\nuse = "a"\nx = 1\n[[gate]]\nuse = "a"\nx = 2\n')
    )
    assert by_table.gate == (section("gate", "a", x=1), section("gate", "a", x=2))
    assert load_config(write(ENVIRONMENT + "[verifier]\nuse = []\n")).verifier == ()


# Layers


def test_extends_is_relative_chains_and_goes_key_by_key(write):
    write('[run]\nseed = 1\nsteps = 5\n[environment]\nuse = "desk"\nsize = 3\n', "base/low.toml")
    write('extends = "base/low.toml"\n[run]\nsteps = 6\nout = "a"\n', "mid.toml")
    top = write('extends = "mid.toml"\n[run]\nout = "b"\n[environment]\nsize = 4\n', "top.toml")
    config = load_config(top)
    assert config.run == RunConfig(1, 6, "b")
    assert config.environment == section("environment", "desk", size=4)


def test_a_plugin_that_takes_anothers_place_keeps_the_options_both_have(write, registry):
    """So that `use` is the whole difference between two correctors."""
    write(ENVIRONMENT + '[corrector]\nuse = "self"\nmax_new_tokens = 7\n', "base.toml")
    other = load_config(write('extends = "base.toml"\n[corrector]\nuse = "teacher"\n'))
    by_set = load_config(write('extends = "base.toml"\n'), ["corrector.use=teacher"])
    assert other.corrector == by_set.corrector == section("corrector", "teacher")
    for config in (other, by_set):
        assert registry.resolve(config.corrector).options["max_new_tokens"] == 7
        assert registry.build(config.corrector).max_new_tokens == 7
    # Options that the other does not have drop out, without a word and for good.
    gate = load_config(write(ENVIRONMENT + "[trigger]\nuse = 'below-rate'\nrate = 0.5\n"), [
        "trigger.use=never"])  # fmt: skip
    assert dict(registry.resolve(gate.trigger).options) == {}
    assert registry.resolve(gate.trigger).kept == {}
    # What is said of the newcomer comes last.
    said = load_config(write('extends = "base.toml"\n'), [
        "corrector.use=teacher", "corrector.max_new_tokens=9"])  # fmt: skip
    assert registry.build(said.corrector).max_new_tokens == 9
    same = load_config(write('extends = "base.toml"\n[corrector]\nuse = "self"\n'))
    assert same.corrector == section("corrector", "self", max_new_tokens=7)
    back = load_config(
        write('extends = "base.toml"\n'), ["corrector.use=teacher", "corrector.use=self"]
    )
    assert registry.build(back.corrector).max_new_tokens == 7
    real = load_config(write('extends = "base.toml"\nenvironment.use = "pocket"\n'), [
        "corrector.use=teacher"])  # fmt: skip
    again = load_config(write(dump_config(real, registry)))
    assert again.corrector.options["max_new_tokens"] == 7


def test_the_veto_is_a_verifier_in_a_section_of_its_own(write, registry):
    config = load_config(write(ENVIRONMENT + '[veto]\nuse = "self"\nbogus = 1\n'))
    [veto] = config.veto
    assert (veto.kind, veto.section, veto.use) == ("verifier", "veto", "self")
    with pytest.raises(ConfigError, match=r"\[veto\] \(self\).*'bogus'"):
        registry.build(veto)
    assert load_config(write(ENVIRONMENT + "[veto]\nuse = []\n")).veto == ()


def test_a_teachers_bill_needs_prices(write):
    with pytest.raises(ConfigError, match=r"\[teacher\] max_cost = 3 needs prices"):
        load_config(write(ENVIRONMENT + "[teacher]\nmax_cost = 3\n"))
    load_config(write(ENVIRONMENT + "[teacher]\nmax_cost = 3\nprice_in = 0.5\n"))


def test_options_of_a_default_plugin_survive_its_being_named(write):
    write(ENVIRONMENT + "[gate]\ndelta = 3\n", "base.toml")
    top = write('extends = "base.toml"\n[gate]\nuse = "perplexity"\n')
    assert load_config(top).gate == (section("gate", "perplexity", delta=3),)


def test_a_list_of_names_keeps_the_options_of_those_it_still_names(write):
    base = '[[gate]]\nuse = "a"\nx = 1\n[[gate]]\nuse = "b"\ny = 2\n'
    write(ENVIRONMENT + base, "base.toml")
    names = load_config(write('extends = "base.toml"\n[gate]\nuse = ["b", "c"]\n'))
    assert names.gate == (section("gate", "b", y=2), section("gate", "c"))
    tables = load_config(write('extends = "base.toml"\n[[gate]]\nuse = "b"\n'))
    assert tables.gate == (section("gate", "b"),)


def test_overrides_come_last_and_read_toml_values(write):
    file = write(ENVIRONMENT + "[run]\nseed = 1\n")
    config = load_config(
        file,
        [
            "run.seed=2",
            "run.seed=3",
            "run.out=runs/a=b",
            'model.path="7"',
            "rollout.families={AH = 2}",
            "rollout.families.BH=1",
            "environment.size=1e3",
            "environment.name=two words",
            "gate.delta=inf",
            'verifier.use=["self", "rubric"]',
            "verifier.1.strict=true",
            "eval.families=['AH', 'BH']",
        ],
    )
    assert (config.run.seed, config.run.out, config.model.path) == (3, "runs/a=b", "7")
    assert config.rollout.families == {"AH": 2, "BH": 1}
    assert config.environment == section("environment", "desk", size=1000.0, name="two words")
    assert config.gate == (section("gate", "perplexity", delta=float("inf")),)
    assert config.verifier[1] == section("verifier", "rubric", strict=True)
    assert config.eval.families == ("AH", "BH")


def test_a_value_cannot_smuggle_in_more_keys():
    config = load_config(None, ["environment.use=desk", "run.out=1\nseed = 3"])
    assert (config.run.out, config.run.seed) == ("1\nseed = 3", 0)


# Errors


def refused(path, overrides=()):
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[rolout]\n", "there is no section 'rolout'. Did you mean 'rollout'? There are:"),
        ("seed = 1\n", "no section 'seed'. There is an option of that name in [run]."),
        ("[run]\nsede = 1\n", "[run] has no option 'sede'. Did you mean 'seed'? It has: seed,"),
        ("[run]\ngroup_size = 1\n", "[run] has no option 'group_size'. It belongs to [rollout]."),
        ('[run]\nseed = "1"\n', "[run] seed = '1' is a string: wanted a whole number"),
        ("[run]\nseed = true\n", "seed = True is true or false: wanted a whole number"),
        ("[run]\nseed = 1.0\n", "seed = 1.0 is a number: wanted a whole number"),
        ("[run]\nseed = 9223372036854775808\n", "wanted a whole number (of at most 64 bits)"),
        ("[run]\nout = 3\n", "out = 3 is a whole number: wanted a string. Put it in quotes."),
        ("[run]\nsteps = 0\n", "[run] steps = 0: must be at least 1.\n  steps: Updates of"),
        ("[rollout]\ntemperature = 0.7\n", "sampled and scored logprobs are of two policies"),
        ("[rollout]\ntop_p = 0.9\n", "sampled and scored logprobs are of two policies"),
        ("[rollout]\ngroup_size = 1\n", "must be at least 2"),
        ("[rollout]\ntimeout_s = nan\n", "timeout_s = nan is NaN: wanted a number"),
        ("[rollout]\nfamilies = {AH = 0}\n", "a table of counts of at least 1"),
        ('[rollout]\nfamilies = ["AH"]\n', "wanted a table, each value a whole number"),
        ('[model]\ndtype = "fp8"\n', "'fp8' is a string: wanted one of 'float32', 'bfloat16'"),
        ('[eval]\nfamilies = "AH"\n', 'wanted a list, each item a string. Write a list as ["a"'),
        (
            ENVIRONMENT + "[intervention]\nrepairs_per_group = 8\n",
            "must be below [rollout] group_size = 8",
        ),
        ("run = 3\n", "[run] is 3: wanted a section with options"),
        ('gate = "x"\n', "[gate] is 'x': wanted a section with `use = \"x\"`"),
        ('gate = ["a", "ü"]\n', 'wanted a section with `use = ["a", "ü"]`'),
        ('trigger = ["never"]\n', 'wanted a section with `use = "..."`'),
        ("gate = [1]\n", 'wanted a section with `use = "..."`'),
        ("[gate]\nuse = 3\n", "[gate] use = 3: wanted the name of a plug-in"),
        ('[gate]\nuse = ""\n', "[gate] use = '': wanted the name of a plug-in"),
        ('[gate]\nuse = ["a"]\nx = 1\n', "which plug-in they are for is not clear"),
        ("[[gate]]\nx = 1\n", "[gate] use = None: wanted the name of a plug-in"),
        ('[[trigger]]\nuse = "never"\n', "takes one plug-in: write [trigger], not [[trigger]]"),
        ('[trigger]\nuse = ["never"]\n', "it takes one plug-in, not a list"),
        ("[environment]\nsize = 1\n", "does not say of which plug-in: Add `use"),
        ("[run]\nseed = 1\n", "names no environment"),
        ("[run\n", "is not TOML"),
        ("[run]\nout = runs/a\n", 'line 2, column 7). Strings need quotes, as in use = "self".'),
        ("[run]\nseed = 1\nseed = 2\n", "is not TOML: Cannot overwrite a value (at line 3"),
        ("extends = 3\n", "extends = 3: wanted the path of one file"),
        ("x = " + "1" * 5000, "cannot be read as TOML"),
        ("x = " + "[" * 100_000, "cannot be read as TOML"),
        (b"\xff\xfe[\x00r\x00", "is not UTF-8 text (byte 0): save it as UTF-8"),
    ],
)
def test_errors_say_where_what_and_the_way_out(write, text, wanted):
    file = write(text)
    message = refused(file)
    assert wanted in message
    if "repairs" not in message:  # sections against each other: no one file is at fault
        assert str(file) in message


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("run.seed", "wanted section.option=value"),
        ("seed=3", "wanted section.option=value"),
        (".seed=3", "wanted section.option=value"),
        ("run.sede=3", "--set run.sede=3: [run] has no option 'sede'. Did you mean 'seed'?"),
        ("runn.seed=3", "no section 'runn'. Did you mean 'run'?"),
        ("run.out=5", "wanted a string. Put it in quotes."),
        ("run.seed.x=5", "wanted a whole number"),
        ("reporter.path=x", "does not say of which plug-in: there are console, jsonl."),
        ("reporter.2.path=x", "[reporter] has 2 entries, counted from 0"),
        ("run.out=\udcff", "is not UTF-8"),
        ("veto=[]", "--set veto=[]: wanted section.option=value, as in --set veto.use=[]."),
        ('gate=["a", "b"]', 'as in --set gate.use=["a", "b"].'),
        ("corrector = teacher", "as in --set corrector.use=teacher."),
        ("trigger=[]", "as in --set trigger.use=NAME."),
        ("verifier", "as in --set verifier.use=NAME."),
        ("gate=1", "as in --set gate.use=NAME."),
        ("run=3", "as in --set rollout.group_size=4 or --set corrector.use=teacher."),
    ],
)
def test_bad_overrides_are_named(override, wanted):
    assert wanted in refused(None, ["environment.use=desk", override])


def test_what_an_error_proposes_for_no_plugins_works():
    assert load_config(None, ["environment.use=desk", "veto.use=[]"]).veto == ()


def test_the_file_at_fault_is_named_not_the_one_on_top(write):
    base = write(ENVIRONMENT + "[run]\nseed = -1\n", "base.toml")
    assert refused(write('extends = "base.toml"\n')).startswith(f"{base}: [run] seed = -1")


def test_unreadable_files(write, tmp_path):
    file = write(ENVIRONMENT, "pocket.toml")
    assert "no such file. Did you mean 'pocket.toml'?" in refused(tmp_path / "poket.toml")
    assert "is a folder: name a TOML file. In it there are: pocket.toml" in refused(tmp_path)
    assert "cannot be read" in refused(file / "below.toml")
    assert "cannot be read" in refused("a\0b.toml")
    assert "gone.toml: there is no such file" in refused(write('extends = "gone.toml"\n'))


def test_extends_in_a_circle(write):
    write('extends = "b.toml"\n', "a.toml")
    b = write('extends = "a.toml"\n', "b.toml")
    assert "goes round in a circle: b.toml → a.toml → b.toml" in refused(b)
    assert "in a circle" in refused(write('extends = "self.toml"\n', "self.toml"))


# Out and back

small = st.integers(1, 50)
big = st.integers(0, 2**63 - 1)
word = st.text(min_size=1, max_size=8)
positive = st.floats(0, exclude_min=True, allow_nan=False)
toml = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CORE = {
    "run": st.builds(RunConfig, seed=big, steps=small, out=word),
    "model": st.builds(ModelConfig, path=st.text(), device=word, threads=small),
    "rollout": st.builds(
        RolloutConfig,
        group_size=st.integers(51, 99),
        tasks_per_step=small,
        families=st.dictionaries(st.text(), small, max_size=3),
        timeout_s=positive,
    ),
    "intervention": st.builds(
        InterventionConfig,
        scope=st.sampled_from(["first", "all"]),
        when=st.sampled_from(["after_rollout", "before_step"]),
        repairs_per_group=small,
        compose=st.sampled_from(["replace", "append"]),
    ),
    "teacher": st.builds(
        TeacherConfig,
        base_url=st.text(),
        timeout_s=st.floats(0, 1e9, exclude_min=True),
        max_cost=st.floats(0, 1e9),
        price_in=st.floats(0.1, 1e9),
        weights=st.text(),
        demonstration_tries=small,
    ),
    "eval": st.builds(
        EvalConfig,
        families=st.lists(word, max_size=3).map(tuple),
        temperature=st.floats(0, 1e300),
    ),
    "checkpoint": st.builds(CheckpointConfig, every=big, keep=small),
}


def plugin(name):
    keys = st.text().filter(lambda key: key not in ("use", _KEPT))
    options = st.dictionaries(keys, toml, max_size=3)
    slot = PLUGIN_SECTIONS[name]
    one = st.builds(
        PluginSection, st.just(slot["kind"]), word, options, section=st.just(name), kept=st.just({})
    )
    return st.lists(one, max_size=3).map(tuple) if slot["many"] else one


configs = st.builds(Config, **CORE, **{kind: plugin(kind) for kind in PLUGIN_SECTIONS})


@settings(max_examples=60, deadline=None)
@given(config=configs)
def test_a_dumped_config_loads_back_equal(tmp_path_factory, config):
    file = tmp_path_factory.getbasetemp() / "dumped.toml"
    file.write_text(dump_config(config), encoding="utf-8", newline="")
    assert load_config(file) == config
    # Every section and every option of the core stands in it.
    table = tomllib.loads(file.read_bytes().decode())
    assert set(table) == {f.name for f in attrs.fields(Config)}
    assert all(set(table[name]) == set(options_of(cls)) for name, cls in CORE_SECTIONS.items())


@frozen
class Toy:
    size: int = option(3, "A size.", at_least(0))
    rate: float = option(0.5, "A rate.", at_least(0))
    names: tuple[str, ...] = option(("a",), "Names.", anything)
    limit: float | None = option(None, "A limit, or none.", anything)


def toys():
    plugin = Plugin("toys", "rti-toys", "1.0")
    return Registry((plugin,), tuple(Entry(kind, "toy", Toy, plugin) for kind in PLUGIN_SECTIONS))


def all_toys(**options):
    return {
        name: (section(slot["kind"], "toy", section=name, **options),)
        if slot["many"]
        else section(slot["kind"], "toy", section=name, **options)
        for name, slot in PLUGIN_SECTIONS.items()
    }


@given(
    options=st.fixed_dictionaries(
        {},
        optional={
            "size": big,
            "rate": positive | small,
            "names": st.lists(st.text(), max_size=2),
            "limit": st.floats(allow_nan=False),
        },
    )
)
@settings(max_examples=25, deadline=None)
def test_with_a_registry_the_options_of_plugins_are_written_out(tmp_path_factory, options):
    config = Config(**all_toys(**options))
    text = dump_config(config, toys())
    file = tmp_path_factory.getbasetemp() / "resolved.toml"
    file.write_text(text, encoding="utf-8", newline="")
    again = load_config(file)
    assert again == resolve_config(config, toys()) == resolve_config(again, toys())
    assert {"size", "rate", "names"} <= set(again.gate[0].options)
    built = toys().build(again.gate[0])
    assert built == toys().build(config.gate[0])


def test_the_documentation_has_the_table_of_the_core_options():
    page = Path(__file__).parents[1] / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8").endswith(reference()), (
        "docs/configuration.md must end with what rti.config.reference() returns"
    )


# A hundred bad configs

BAD: dict[type, list[Any]] = {
    int: ["x", True, 2.5, [1], {"a": 1}, float("nan"), datetime.date(2027, 1, 1), 2**70, -1],
    float: ["x", False, [1.0], {"a": 1}, float("nan"), datetime.time(1, 2), -1.0, 10**400],
    str: [1, True, 1.5, ["x"], {"a": "x"}, datetime.datetime(2027, 1, 1), [[]]],
    tuple: ["x", 1, [1], {"a": 1}, [""], [["x"]]],
    dict: ["x", 1, ["x"], {"A": "x"}, {"A": True}, {"A": 0}, {"A": {"B": 1}}],
}


def literal(value):
    return (
        tomli_w.dumps({"v": value}).removeprefix("v = ")
        if type(value) is not dict
        else "{"
        + (", ".join(f"{key} = {literal(item).strip()}" for key, item in value.items()) + "}\n")
    )


def misspelt(rng, word):
    i = rng.randrange(len(word))
    return rng.choice([word[:i] + word[i + 1 :] or "q", word + rng.choice("xyz"), "z" + word])


def bad_value(rng, text):
    name = rng.choice(list(CORE_SECTIONS))
    key, attribute = rng.choice(list(options_of(CORE_SECTIONS[name]).items()))
    bad = rng.choice(BAD[type(default_of(attribute))])
    return f"[{name}]\n{key} = {literal(bad)}" + text, [name, key]


def unknown_option(rng, text):
    name = rng.choice(list(CORE_SECTIONS))
    key = misspelt(rng, rng.choice(list(options_of(CORE_SECTIONS[name]))))
    return f"[{name}]\n{key} = 1\n" + text, [name, key]


def unknown_section(rng, text):
    name = misspelt(rng, rng.choice([*CORE_SECTIONS, *PLUGIN_SECTIONS]))
    return f"[{name}]\n" + text, [name]


def no_toml(rng, text):
    at = rng.randrange(len(text))
    junk = rng.choice(["\0", '"', "= =", "[", "'''", "\x07", "[[x]", "use use"])
    return text[:at] + junk + "\n= " + text[at:], ["run.toml"]


def no_utf8(rng, text):
    at = rng.randrange(len(text))
    return text[:at].encode() + bytes([rng.randrange(128, 256), 0x20]) + text[at:].encode(), [
        "run.toml"
    ]


def bad_use(rng, text):
    name = rng.choice([n for n in PLUGIN_SECTIONS if n != "environment"])
    bad = rng.choice([3, True, "", 1.5, [3], [""], {"a": 1}, ["a", ["b"]]])
    return text + f"[{name}]\nuse = {literal(bad)}", [name]


def many_for_one(rng, text):
    name = rng.choice([n for n in PLUGIN_SECTIONS if not PLUGIN_SECTIONS[n]["many"]])
    if name == "environment":
        text = ""
    return text + rng.choice([f'[[{name}]]\nuse = "a"\n', f'[{name}]\nuse = ["a"]\n']), [name]


def bad_extends(rng, text):
    return rng.choice(["3", '"gone.toml"', '"run.toml"', '["a"]', '""', '"."']).join(
        ["extends = ", "\n" + text]
    ), ["run.toml"]


def bad_plugin_option(rng, text):
    key, bad = rng.choice([("size", "x"), ("size", -1), ("sise", 1), ("rate", True), ("names", 3)])
    text = text.replace("rate = 0.25", f"{key} = {literal(bad)}")
    return text, ["environment", "toy", key]


def at_odds(rng, text):
    size = rng.randrange(2, 9)
    repairs = size + rng.randrange(3)
    return (
        f"[rollout]\ngroup_size = {size}\n[intervention]\nrepairs_per_group = {repairs}\n" + text,
        ["[intervention]", "repairs_per_group", "[rollout]", "group_size"],
    )


FUZZ = [bad_value, unknown_option, unknown_section, no_toml, no_utf8, bad_use, many_for_one,
        bad_extends, bad_plugin_option, at_odds]  # fmt: skip


@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_bad_configs_give_a_hundred_clear_messages(write, seed):
    rng = random.Random(seed)
    good = '[environment]\nuse = "toy"\nrate = 0.25\n'
    text, named = FUZZ[seed % len(FUZZ)](rng, good)
    file = write(text)
    with pytest.raises(RtiError) as caught:
        resolve_config(load_config(file), toys())
    message = str(caught.value)
    assert type(caught.value) is ConfigError, message
    assert all(word in message for word in named), (message, named)
    assert 20 < len(message) < 900
    assert "Traceback" not in message


def test_the_good_one_behind_the_hundred_is_good(write):
    others = "".join(f'[{k}]\nuse = "toy"\n' for k in PLUGIN_SECTIONS if k != "environment")
    text = '[environment]\nuse = "toy"\nrate = 0.25\n' + others
    assert resolve_config(load_config(write(text)), toys()).environment.options["rate"] == 0.25
