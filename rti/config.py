"""Config: TOML files and `--set` overrides to frozen attrs classes.

A section of the core is a class here. A plug-in section is `use = "name"` and the options of
that plug-in, which are checked when the registry builds it. See `docs/configuration.md`.
"""

# ruff: noqa: RUF009 - these calls make attrs fields, they are no shared defaults
from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
import tomli_w
from attrs import field, frozen

from rti.convert import (
    checked,
    construct,
    default_of,
    did_you_mean,
    listed,
    option_types,
    plain,
    shown,
    type_name,
)
from rti.errors import ConfigError
from rti.options import (
    above,
    anything,
    at_least,
    between,
    finite,
    not_empty,
    one_of,
    option,
    options_of,
)

if TYPE_CHECKING:
    from rti.registry import Registry


def _exactly_one(value: Any) -> str | None:
    if value == 1:
        return None
    return (
        "1 in training: otherwise sampled and scored logprobs are of two policies "
        "([eval] has its own temperature)"
    )


def _counts(value: Any) -> str | None:
    return None if all(n >= 1 for n in value.values()) else "a table of counts of at least 1"


def _no_blanks(value: Any) -> str | None:
    return None if all(value) else "a list of names, none of them empty"


@frozen
class RunConfig:
    """The run itself."""

    seed: int = option(0, "All randomness of the run comes from this number.", at_least(0))
    steps: int = option(50, "Updates of the policy.", at_least(1))
    out: str = option("runs/run", "Folder the run writes into.", not_empty)
    token_budget: int = option(
        0,
        "End after the step in which so many tokens were sampled and scored; 0 for no such end.",
        at_least(0),
    )


@frozen
class ModelConfig:
    """The model that is trained."""

    path: str = option(
        "",
        "Local Hugging Face folder, or package:folder for one that a plug-in ships.",
        anything,
    )
    dtype: Literal["float32", "bfloat16"] = option(
        "float32", "Number format of the weights.", one_of("float32", "bfloat16")
    )
    device: str = option("cpu", "Device as torch names it: cpu, cuda, cuda:1.", not_empty)
    threads: int = option(1, "CPU threads of torch; results depend on it.", at_least(1))


@frozen
class RolloutConfig:
    """How rollouts are sampled in training."""

    group_size: int = option(8, "Rollouts a task (G).", at_least(2))
    tasks_per_step: int = option(8, "Tasks a step, that is groups a batch.", at_least(1))
    families: dict[str, int] = option(
        {}, "Tasks a step by family, e.g. {AH = 4}; when given it decides tasks_per_step.", _counts
    )
    split: str = option("train", "Split of the environment's tasks.", not_empty)
    max_turns: int = option(8, "Most turns an episode; a longer one is truncated.", at_least(1))
    max_new_tokens: int = option(256, "Most tokens a turn.", at_least(1))
    max_context: int = option(
        0,
        "Most tokens of prompt and turn together: a rollout that has no room for its next turn is "
        "truncated; 0 for no such limit.",
        at_least(0),
    )
    temperature: float = option(1.0, "Sampling temperature; training allows only 1.", _exactly_one)
    top_p: float = option(1.0, "Nucleus sampling; training allows only 1.", _exactly_one)
    retries: int = option(1, "Tries more after an infrastructure fault.", at_least(0))
    timeout_s: float = option(
        120.0, "Seconds an environment may take over one step; inf for no limit.", above(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.families:
            object.__setattr__(self, "tasks_per_step", sum(self.families.values()))


@frozen
class InterventionConfig:
    """Which turns of which rollouts are repaired, and how often it is tried."""

    scope: Literal["first", "all"] = option(
        "first", "Repair the first harmful turn, or all of them.", one_of("first", "all")
    )
    when: Literal["after_rollout", "before_step"] = option(
        "after_rollout",
        "Judge a turn when the rollout is over, or before the turn is executed (its observations "
        "are not known then).",
        one_of("after_rollout", "before_step"),
    )
    repairs_per_group: int = option(
        0, "Most rollouts repaired in a group, below group_size; 0 for half of it.", at_least(0)
    )
    attempts: int = option(2, "Tries to repair one rollout.", at_least(1))
    max_corrections: int = option(
        8, 'Most corrected turns in one rollout, with scope = "all".', at_least(1)
    )
    compose: Literal["replace", "append"] = option(
        "replace",
        "Put the repaired rollout in place of its draft, or beside it where the trainer can.",
        one_of("replace", "append"),
    )
    score_by: Literal["policy", "trainer"] = option(
        "policy",
        "Whose logprobs the gate, the weights and the loss of a corrected turn rest on. The "
        "trainer's cost no second prefill where the policy is a vLLM server.",
        one_of("policy", "trainer"),
    )


@frozen
class TeacherConfig:
    """A stronger model: behind an OpenAI-compatible endpoint, or in a local folder.

    The endpoint, with one budget, is for the roles with `use = "teacher"`. The folder is for
    objectives that learn from a teacher's rollouts or logprobs, such as `luffy` and `opd`.
    """

    base_url: str = option(
        "", "Where it is, as in http://127.0.0.1:8000/v1; empty: OPENAI_BASE_URL.", anything
    )
    model: str = option("", "The model's name there; empty: the only one it serves.", anything)
    key_env: str = option("OPENAI_API_KEY", "Environment variable that holds the key.", not_empty)
    timeout_s: float = option(60.0, "Seconds one request may take.", above(0), finite)
    retries: int = option(3, "Tries more after a fault, a 429 or a 5xx.", at_least(0))
    concurrency: int = option(8, "Most requests under way at once.", at_least(1))
    max_requests: int = option(0, "Most requests of the run; 0 for no limit.", at_least(0))
    max_tokens: int = option(
        0, "Most tokens of the run, prompts and replies together; 0 for no limit.", at_least(0)
    )
    max_cost: float = option(
        0.0, "Most money of the run, in the unit of the prices; 0: no limit.", at_least(0), finite
    )
    price_in: float = option(0.0, "Price of a million prompt tokens.", at_least(0), finite)
    price_out: float = option(0.0, "Price of a million reply tokens.", at_least(0), finite)
    weights: str = option(
        "",
        "Local Hugging Face folder of a teacher with the policy's own vocabulary, or "
        "package:folder; for objectives that need a teacher.",
        anything,
    )
    demonstration_tries: int = option(
        4, "Times the teacher of `weights` may play a task for one success.", at_least(1)
    )

    def __attrs_post_init__(self) -> None:
        if self.max_cost and not (self.price_in or self.price_out):
            raise ConfigError(
                f"[teacher] max_cost = {self.max_cost:g} needs prices: set price_in and price_out "
                "(of a million tokens), or leave max_cost at 0 and bound max_tokens."
            )


@frozen
class EvalConfig:
    """How the policy is evaluated. Evaluation never intervenes."""

    every: int = option(0, "Evaluate every so many steps; 0 for only when asked.", at_least(0))
    split: str = option("test", "Split of the environment's tasks.", not_empty)
    tasks: int = option(0, "Most tasks; 0 for all.", at_least(0))
    families: tuple[str, ...] = option((), "Families of tasks; empty for all.", _no_blanks)
    trials: int = option(8, "Rollouts a task.", at_least(1))
    temperature: float = option(
        1.0, "Sampling temperature; 0 takes the likeliest token.", at_least(0), finite
    )
    max_new_tokens: int = option(0, "Most tokens a turn; 0 for as [rollout].", at_least(0))
    at_once: int = option(
        256, "Most rollouts alive together; who shares a batch follows from it.", at_least(1)
    )


@frozen
class CheckpointConfig:
    """What is kept so that a run can be continued."""

    every: int = option(10, "Save every so many steps; 0 for only at the end.", at_least(0))
    keep: int = option(2, "Checkpoints kept, the newest ones.", between(1, 10_000))


@frozen
class PluginSection:
    """A plug-in as a config names it: its kind, its name, its options as written (unchecked).

    `section` is the config's name for it where that is not the kind. `kept` are options of a
    plug-in that this one takes the place of: those that it has too stay as they were.
    """

    kind: str
    use: str
    options: Mapping[str, Any] = field(factory=dict)
    section: str = field(kw_only=True, default=attrs.Factory(lambda s: s.kind, takes_self=True))
    kept: Mapping[str, Any] = field(kw_only=True, factory=dict, eq=False)


def _one(kind: str, default: str, doc: str) -> Any:
    return field(
        factory=lambda: PluginSection(kind, default),
        metadata={"kind": kind, "default": (default,), "many": False, "doc": doc},
    )


def _many(kind: str, default: tuple[str, ...], doc: str, section: str = "") -> Any:
    return field(
        factory=lambda: tuple(PluginSection(kind, n, section=section or kind) for n in default),
        metadata={"kind": kind, "default": default, "many": True, "doc": doc},
    )


def _core(cls: type) -> Any:
    return field(factory=cls, metadata={"core": cls})


@frozen
class Config:
    """A whole config. Sections of which there may be several are tuples, possibly empty.

    Raises:
        ConfigError: when sections contradict each other.
    """

    environment: PluginSection = field(
        metadata={
            "kind": "environment",
            "default": (),
            "many": False,
            "doc": "Tasks, and how to live them.",
        }
    )
    run: RunConfig = _core(RunConfig)
    model: ModelConfig = _core(ModelConfig)
    rollout: RolloutConfig = _core(RolloutConfig)
    intervention: InterventionConfig = _core(InterventionConfig)
    teacher: TeacherConfig = _core(TeacherConfig)
    eval: EvalConfig = _core(EvalConfig)
    checkpoint: CheckpointConfig = _core(CheckpointConfig)
    trigger: PluginSection = _one("trigger", "all-failed", "Which groups are intervened on.")
    validator: PluginSection = _one("validator", "self", "Finds the turn that derails a rollout.")
    corrector: PluginSection = _one("corrector", "self", "Writes a corrected turn.")
    veto: tuple[PluginSection, ...] = _many(
        "verifier",
        ("leaks",),
        "Rules that refuse a diagnosis or a correction, whatever the verifiers say.",
        "veto",
    )
    verifier: tuple[PluginSection, ...] = _many(
        "verifier", ("self",), "Judge a correction; all must accept."
    )
    gate: tuple[PluginSection, ...] = _many(
        "gate", ("perplexity",), "Look at its numbers; all must admit."
    )
    weighter: PluginSection = _one("weighter", "calibration", "Weighs the tokens of a correction.")
    objective: PluginSection = _one("objective", "grpo", "What is maximised.")
    policy: PluginSection = _one("policy", "hf", "Samples and scores tokens.")
    trainer: PluginSection = _one("trainer", "hf", "Updates the weights.")
    renderer: PluginSection = _one("renderer", "chatml", "Turns messages into token ids and back.")
    reporter: tuple[PluginSection, ...] = _many(
        "reporter", ("console", "jsonl"), "Take the run's events: progress, logs."
    )

    def __attrs_post_init__(self) -> None:
        repairs, size = self.intervention.repairs_per_group, self.rollout.group_size
        if repairs >= size:
            raise ConfigError(
                f"[intervention] repairs_per_group = {repairs} must be below [rollout] "
                f"group_size = {size}: a group of successes alone has no signal either. "
                "0 means half of the group."
            )

    @property
    def repairs_per_group(self) -> int:
        """Most rollouts repaired in a group, with 0 resolved to half of it."""
        return self.intervention.repairs_per_group or self.rollout.group_size // 2

    @property
    def eval_max_new_tokens(self) -> int:
        """Most tokens a turn in evaluation, with 0 resolved to the rollout's."""
        return self.eval.max_new_tokens or self.rollout.max_new_tokens

    def plugin_sections(self) -> tuple[PluginSection, ...]:
        """All plug-in sections, in the order of the fields."""
        found: list[PluginSection] = []
        for name in PLUGIN_SECTIONS:
            value = getattr(self, name)
            found += value if isinstance(value, tuple) else [value]
        return tuple(found)


_FIELDS = attrs.fields_dict(Config)
CORE_SECTIONS: Mapping[str, type] = {
    name: f.metadata["core"] for name, f in _FIELDS.items() if "core" in f.metadata
}
"""The core's sections by name, with the class of each."""

PLUGIN_SECTIONS: Mapping[str, Mapping[str, Any]] = {
    name: f.metadata for name, f in _FIELDS.items() if "kind" in f.metadata
}
"""The plug-in sections by name: `default` names, whether there may be `many`, and a `doc`."""

_KEPT = "(kept)"
"""In a plug-in's table: the options of the plug-in whose place it took."""

_Tables = dict[str, Any]  # section -> table, or for a plug-in section a list of tables with `use`


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a config file (None for defaults alone) and apply `section.option=value` overrides.

    Raises:
        ConfigError: for anything that cannot be used, saying where, what, and the way out.
    """
    tables: _Tables = {name: {} for name in CORE_SECTIONS}
    for name, slot in PLUGIN_SECTIONS.items():
        tables[name] = [{"use": use} for use in slot["default"]]
    for source, layer in _chain(Path(path), ()) if path is not None else ():
        tables = _merge(tables, layer, f"{source}: ")
    for text in overrides:
        tables = _merge(tables, _override(tables, text), f"--set {text}: ")
    if not tables["environment"]:
        raise ConfigError(
            f"{path or 'The config'} names no environment. Add a section [environment] with "
            '`use = "..."`; `rti plugins environment` lists what exists.'
        )
    built: dict[str, Any] = {
        name: construct(cls, tables[name], f"[{name}]") for name, cls in CORE_SECTIONS.items()
    }
    for name, slot in PLUGIN_SECTIONS.items():
        sections = tuple(
            PluginSection(
                slot["kind"],
                table["use"],
                {k: v for k, v in table.items() if k not in ("use", _KEPT)},
                section=name,
                kept=table.get(_KEPT, {}),
            )
            for table in tables[name]
        )
        built[name] = sections if slot["many"] else sections[0]
    return Config(**built)


def dump_config(config: Config, registry: Registry | None = None) -> str:
    """The whole config as TOML, all defaults written out; `load_config` reads it back equal.

    With a registry, the defaults of the plug-ins' options are written too, and options kept from
    plug-ins that others took the place of.
    """
    if registry is not None:
        config = resolve_config(config, registry)
    document: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(config, name)
        if isinstance(value, PluginSection):
            document[name] = _table(value)
        elif isinstance(value, tuple):
            entries = [_table(section) for section in value]
            document[name] = entries if entries else {"use": []}
        else:
            document[name] = plain(attrs.asdict(value, recurse=False))
    return tomli_w.dumps(document)


def resolve_config(config: Config, registry: Registry) -> Config:
    """The config with every option of its plug-ins written out, defaults included.

    Raises:
        ConfigError: for an option that a plug-in does not have, or a value it refuses.
        PluginError: for a plug-in that cannot be used.
    """
    changes: dict[str, Any] = {}
    for name in PLUGIN_SECTIONS:
        value = getattr(config, name)
        if isinstance(value, tuple):
            changes[name] = tuple(registry.resolve(section) for section in value)
        else:
            changes[name] = registry.resolve(value)
    return attrs.evolve(config, **changes)


def reference() -> str:
    """The core's sections and options as Markdown tables, for the documentation."""
    lines = []
    for name, cls in CORE_SECTIONS.items():
        lines += [f"### `[{name}]`", "", str(cls.__doc__), ""]
        lines += ["| option | type | default | |", "|---|---|---|---|"]
        wanted = option_types(cls)
        for key, attribute in options_of(cls).items():
            kind = type_name(wanted[key]).replace("|", "\\|")
            default = _toml(default_of(attribute))
            lines.append(f"| `{key}` | `{kind}` | `{default}` | {attribute.metadata['doc']} |")
        lines.append("")
    lines += ["### Plug-in sections", "", "| section | default | |", "|---|---|---|"]
    for name, slot in PLUGIN_SECTIONS.items():
        default = ", ".join(f"`{use}`" for use in slot["default"]) or "none: it must be given"
        lines.append(f"| `[{name}]` | {default} | {slot['doc']} |")
    return "\n".join(lines) + "\n"


def _table(section: PluginSection) -> dict[str, Any]:
    return {"use": section.use, **plain(section.options)}


def _toml(value: Any) -> str:
    return tomli_w.dumps({"v": plain(value)}).removeprefix("v = ").strip() if value != {} else "{}"


def _chain(path: Path, below: tuple[Path, ...]) -> list[tuple[Path, _Tables]]:
    """The file's table and those it extends, the base first."""
    table = _read(path)
    here = path.resolve()
    if here in below:
        names = " → ".join(str(p.name) for p in (*below[below.index(here) :], here))
        raise ConfigError(f"{path}: `extends` goes round in a circle: {names}. Break it somewhere.")
    base = table.pop("extends", None)
    if base is None:
        return [(path, table)]
    if not isinstance(base, str) or not base:
        raise ConfigError(
            f"{path}: extends = {shown(base)}: wanted the path of one file, relative to this one."
        )
    return [*_chain(path.parent / base, (*below, here)), (path, table)]


def _read(path: Path) -> _Tables:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        near = did_you_mean(path.name, _neighbours(path.parent))
        raise ConfigError(f"{path}: there is no such file.{near}") from None
    except IsADirectoryError:
        inside = listed(_neighbours(path))
        raise ConfigError(
            f"{path} is a folder: name a TOML file. In it there are: {inside}."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8."
        ) from None
    except tomllib.TOMLDecodeError as error:
        # The error that everyone makes; the parser's own words lead elsewhere.
        hint = ' Strings need quotes, as in use = "self".' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{path} is not TOML: {error}.{hint}") from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}. Check its path and permissions."
        ) from None
    except (ValueError, RecursionError) as error:
        # An integer of thousands of digits, a NUL in the path, nesting without end.
        raise ConfigError(f"{path} cannot be read as TOML: {error}. Simplify it.") from None


def _neighbours(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
    except OSError:
        return []


def _merge(tables: _Tables, layer: Mapping[str, Any], source: str) -> _Tables:
    """`tables` with `layer` laid over, key by key; `source` opens every message."""
    merged = dict(tables)
    for name, table in layer.items():
        where = f"{source}[{name}]"
        if name in CORE_SECTIONS:
            if not isinstance(table, Mapping):
                raise ConfigError(f"{where} is {shown(table)}: wanted a section with options.")
            _known(name, table, source)
            merged[name] = {**tables[name], **checked(CORE_SECTIONS[name], table, where)}
        elif name in PLUGIN_SECTIONS:
            merged[name] = _merge_plugins(name, tables[name], table, where)
        else:
            homes = [s for s, cls in CORE_SECTIONS.items() if name in options_of(cls)]
            home = f" There is an option of that name in [{homes[0]}]." if homes else ""
            raise ConfigError(
                f"{source}there is no section {name!r}."
                f"{home or did_you_mean(name, _FIELDS)} There are: {listed(_FIELDS)}."
            )
    return merged


def _known(section: str, table: Mapping[str, Any], source: str) -> None:
    """An option put into the wrong section deserves to hear of the right one."""
    for key in table:
        homes = [s for s, cls in CORE_SECTIONS.items() if key in options_of(cls)]
        if homes and section not in homes:
            raise ConfigError(
                f"{source}[{section}] has no option {key!r}. It belongs to [{homes[0]}]. "
                f"[{section}] has: {listed(options_of(CORE_SECTIONS[section]))}."
            )


def _merge_plugins(name: str, parent: list[_Tables], child: Any, where: str) -> list[_Tables]:
    """A plug-in that is still named keeps the options it had.

    Where one takes the place of another, options that both have stay: `corrector.use=teacher` is
    then the whole change. In lists, a plug-in that is no longer named drops out with its options.
    """
    many = PLUGIN_SECTIONS[name]["many"]

    def kept(use: Any) -> _Tables:
        if not isinstance(use, str) or not use:
            wanted = 'the name of a plug-in, as in use = "self"'
            raise ConfigError(f"{where} use = {shown(use)}: wanted {wanted}.")
        return next((entry for entry in parent if entry["use"] == use), {"use": use})

    if isinstance(child, list) and all(isinstance(entry, Mapping) for entry in child):
        if not many:
            raise ConfigError(f"{where} takes one plug-in: write [{name}], not [[{name}]].")
        return [{**entry, "use": kept(entry.get("use"))["use"]} for entry in child]
    if not isinstance(child, Mapping):
        use = json.dumps(child, ensure_ascii=False) if _usable(child, many) else '"..."'
        raise ConfigError(f"{where} is {shown(child)}: wanted a section with `use = {use}`.")
    use = child.get("use", None)
    if isinstance(use, list):
        if not many:
            raise ConfigError(f"{where} use = {shown(use)}: it takes one plug-in, not a list.")
        if len(child) > 1:
            raise ConfigError(
                f"{where} has a list of plug-ins and options ({listed(k for k in child)}): which "
                f"plug-in they are for is not clear. Write one [[{name}]] for each plug-in."
            )
        return [kept(each) for each in use]
    if "use" in child:
        entry = {**kept(use), **child}
        if len(parent) == 1 and parent[0]["use"] != use:
            before = {k: v for k, v in parent[0].items() if k not in ("use", _KEPT)}
            entry[_KEPT] = {**parent[0].get(_KEPT, {}), **before}
        return [entry]
    if len(parent) == 1:
        return [{**parent[0], **child}]
    raise ConfigError(
        f"{where} has options ({listed(child)}) but does not say of which plug-in: "
        + (f"there are {listed(e['use'] for e in parent)}. " if parent else "")
        + 'Add `use = "..."`.'
    )


def _override(tables: _Tables, text: str) -> _Tables:
    """`section.option=value` as a layer; deeper keys reach into tables, numbers into lists."""
    name, equals, raw = text.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(
            f"--set {text}: wanted section.option=value, as in {_example(keys[0], raw.strip())}."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"--set {text!r}: this is not UTF-8 text.") from None
    section, *path = keys
    value = _value(raw.strip())
    now = tables.get(section)
    if isinstance(now, list):
        if path[0].isdigit() and len(path) > 1 and PLUGIN_SECTIONS[section]["many"]:
            index = int(path[0])
            if index >= len(now):
                raise ConfigError(
                    f"--set {text}: [{section}] has {len(now)} entries, counted from 0."
                )
            change = _nested(now[index], path[1:], value)
            entry = change if "use" in change else {**now[index], **change}
            return {section: [*now[:index], entry, *now[index + 1 :]]}
        now = now[0] if len(now) == 1 else {}
    return {section: _nested(now or {}, path, value)}


def _example(section: str, raw: str) -> str:
    """An override to go by; where one names a plug-in section alone, the one that it stands for."""
    if section not in PLUGIN_SECTIONS:
        return "--set rollout.group_size=4 or --set corrector.use=teacher"
    meant = _usable(_value(raw), PLUGIN_SECTIONS[section]["many"])
    return f"--set {section}.use={raw if meant else 'NAME'}"


def _usable(value: Any, many: bool) -> bool:
    """Whether a value could stand behind `use`: the name of a plug-in, or names of several."""
    if isinstance(value, list):
        return many and all(isinstance(name, str) and name for name in value)
    return isinstance(value, str) and value != ""


def _nested(now: Mapping[str, Any], path: Sequence[str], value: Any) -> _Tables:
    """`{a: {b: value}}` for the path a.b, keeping what else `now` has beside b."""
    key, *rest = path
    if not rest:
        return {key: value}
    inner = now.get(key)
    inner = inner if isinstance(inner, Mapping) else {}
    return {key: {**inner, **_nested(inner, rest, value)}}


def _value(raw: str) -> Any:
    """A TOML value, or else the text as it stands."""
    try:
        table = tomllib.loads(f"v = {raw}")
    except (ValueError, RecursionError):
        return raw
    return table["v"] if table.keys() == {"v"} else raw
