"""Plug-ins: find them, list them, build them by name.

Each plug-in is loaded by itself: one that cannot be imported, or whose hooks misbehave, is listed
as broken and stops nothing else, unless the config names it. Two plug-ins that give one name to
one kind clash: neither is built under that name until one of them is left out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import attrs
import pluggy
from attrs import evolve, field, frozen

from rti import hookspecs, interfaces
from rti.commands import BUILT_IN
from rti.config import PluginSection
from rti.convert import construct, did_you_mean, listed, option_types, resolved, shown
from rti.errors import ConfigError, PluginError, RtiError
from rti.hookspecs import ENTRY_POINT_GROUP, PROJECT
from rti.options import options_of

CORE_DISTRIBUTION = "rti-rl"


@frozen
class Kind:
    """A kind of plug-in: the hook that gives its classes, and the protocol they follow."""

    hook: str
    protocol: type | None


KINDS: Mapping[str, Kind] = {
    "validator": Kind("rti_validators", interfaces.Validator),
    "corrector": Kind("rti_correctors", interfaces.Corrector),
    "verifier": Kind("rti_verifiers", interfaces.Verifier),
    "gate": Kind("rti_gates", interfaces.Gate),
    "weighter": Kind("rti_weighters", interfaces.Weighter),
    "trigger": Kind("rti_triggers", interfaces.Trigger),
    "environment": Kind("rti_environments", interfaces.Environment),
    "renderer": Kind("rti_renderers", interfaces.Renderer),
    "policy": Kind("rti_policies", interfaces.Policy),
    "objective": Kind("rti_objectives", interfaces.Objective),
    "trainer": Kind("rti_trainers", interfaces.Trainer),
    "reporter": Kind("rti_reporters", interfaces.Reporter),
    "command": Kind("rti_commands", None),
}
"""All kinds by name. Commands are callables; every other kind is made of attrs classes."""


class Origin(NamedTuple):
    """Where a plug-in class came from, for provenance."""

    plugin: str
    distribution: str
    version: str


@frozen
class Plugin:
    """One plug-in: an entry point of an installed distribution, or a single file.

    For a file, `distribution` is its path and `version` the start of its SHA-256.
    """

    name: str
    distribution: str
    version: str
    status: Literal["ok", "broken", "blocked"] = "ok"
    error: str = ""
    from_file: bool = False
    exception: BaseException | None = field(default=None, eq=False, repr=False)

    @property
    def origin(self) -> Origin:
        """Name, distribution and version."""
        return Origin(self.name, self.distribution, self.version)

    def __str__(self) -> str:
        return f"{self.name!r} of {self.distribution} {self.version}".rstrip()


@frozen
class Entry:
    """One name of one kind. `cls` is an attrs class (for commands, a callable)."""

    kind: str
    name: str
    cls: Any
    plugin: Plugin
    status: Literal["ok", "broken", "clash"] = "ok"
    error: str = ""


@frozen
class Registry:
    """Every plug-in that was found, and every name that they give."""

    plugins: tuple[Plugin, ...] = ()
    entries: tuple[Entry, ...] = ()
    words: tuple[str, ...] = ()
    """The global options that another `rti` needs to find the same."""

    @classmethod
    def load(cls, files: Sequence[str | Path] = (), blocked: Sequence[str] = ()) -> Registry:
        """Load the entry points of group "rti", then single-file plug-ins.

        `blocked` names plug-ins or distributions that are not imported at all.

        Raises:
            PluginError: for a file that cannot be used, or a blocked name that nothing has.
        """
        loader = _Loader(frozenset(blocked))
        for plugin, load in _installed():
            loader.add(plugin, load)
        paths = list(dict.fromkeys(Path(file).resolve() for file in files))
        for path in paths:
            loader.add_file(path)
        known = {word for p in loader.plugins for word in (p.name, p.distribution)}
        for name in blocked:
            if name not in known:
                raise PluginError(
                    f"--no-plugin {name}: there is no such plug-in.{did_you_mean(name, known)} "
                    f"There are: {listed(p.name for p in loader.plugins)}."
                )
        words = [word for path in paths for word in ("--plugin", str(path))]
        words += [word for name in blocked for word in ("--no-plugin", name)]
        return cls(tuple(loader.plugins), _with_clashes(loader.entries), tuple(words))

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of a kind that can be built, sorted."""
        return tuple(sorted(e.name for e in self.entries if e.kind == kind and e.status == "ok"))

    def entry(self, kind: str, name: str) -> Entry:
        """What `name` stands for.

        Raises:
            PluginError: for a name that is unknown, broken, or given twice.
        """
        found = [e for e in self.entries if (e.kind, e.name) == (kind, name)]
        if not found:
            raise PluginError(self._unknown(kind, name))
        first = found[0]
        if first.status == "ok":
            return first
        if first.status == "broken":
            raise PluginError(
                f"{kind} {name!r} comes from the plug-in {first.plugin}, which is broken: "
                f"{first.error}. Repair it, or leave it out with --no-plugin {first.plugin.name}."
            ) from first.plugin.exception
        raise PluginError(first.error)

    def get(self, kind: str, name: str) -> Any:
        """The class of `name`. Raises PluginError as `entry`."""
        return self.entry(kind, name).cls

    def provenance(self, kind: str, name: str) -> Origin:
        """Plug-in, distribution and version behind a name. Raises PluginError as `entry`."""
        return self.entry(kind, name).plugin.origin

    def build(self, section: PluginSection) -> Any:
        """The object that a config section describes; `bind` is the caller's to call.

        Raises:
            ConfigError: for an option that the plug-in does not have, or a value it refuses.
            PluginError: for a name that cannot be used, a missing extra, or a plug-in that fails.
        """
        entry = self.entry(section.kind, section.use)
        with self.guard(entry.cls):
            return construct(entry.cls, _options(entry.cls, section), _where(section))

    def resolve(self, section: PluginSection) -> PluginSection:
        """The section with all options written out, defaults included. Raises as `build`."""
        cls = self.get(section.kind, section.use)
        options = resolved(cls, _options(cls, section), _where(section))
        return evolve(section, options=options, kept={})

    @contextmanager
    def guard(self, plugin: Any) -> Iterator[None]:
        """Around `bind` or construction of a plug-in object or class: name it when it fails.

        Raises:
            PluginError: in place of any exception that is not one of `rti`'s own.
        """
        cls = plugin if isinstance(plugin, type) else type(plugin)
        try:
            yield
        except RtiError:
            raise
        except ImportError as error:
            raise self.explain_missing(cls, error) from error
        except Exception as error:  # foreign code: whatever it raises, the plug-in is to be named
            raise PluginError(
                f"{self._title(cls)} failed: {_words(error)}. Run with --traceback to see where."
            ) from error

    def explain_missing(self, cls: type, error: ImportError) -> PluginError:
        """What to install when a plug-in class met an ImportError."""
        missing = f"needs {error.name!r}" if error.name else "needs more than is installed"
        extra = getattr(cls, "extra", "")
        owner = self._owner(cls)
        # A file has no extras of its own; one that names an extra means the core's.
        installed = owner is not None and not owner.from_file
        distribution = owner.distribution if owner and installed else CORE_DISTRIBUTION
        cure = f"Install it: pip install '{distribution}[{extra}]'" if extra else "Install it"
        return PluginError(f"{self._title(cls)} {missing} ({error}). {cure}.")

    def _owner(self, cls: type) -> Plugin | None:
        return next((e.plugin for e in self.entries if e.cls is cls), None)

    def _title(self, cls: type) -> str:
        for entry in self.entries:
            if entry.cls is cls:
                return f"{entry.kind} {entry.name!r} (plug-in {entry.plugin})"
        return f"plug-in class {cls.__name__}"

    def _unknown(self, kind: str, name: str) -> str:
        if kind not in KINDS:
            return (
                f"there is no kind of plug-in {kind!r}.{did_you_mean(kind, KINDS)} "
                f"There are: {listed(KINDS)}."
            )
        names = self.names(kind)
        other = [e.kind for e in self.entries if e.name == name and e.status == "ok"]
        message = f"[{kind}] there is no {kind} {name!r}.{did_you_mean(name, names)} "
        message += f"There are: {listed(names)}. --plugin FILE loads more from a file."
        if other:
            message += f" {name!r} is a name of another kind: {listed(other)}."
        for plugin in self.plugins:
            if plugin.status == "broken":
                message += f"\n  The plug-in {plugin} is broken, and may have it: {plugin.error}."
            if plugin.status == "blocked":
                message += f"\n  The plug-in {plugin} is left out by --no-plugin."
        return message


class _Rubbish(Exception):
    """A plug-in that loads, but breaks a rule of plug-ins; the text says which."""


class _Loader:
    """Takes plug-ins one at a time; what one does wrong is its own affair."""

    def __init__(self, blocked: frozenset[str]) -> None:
        self.blocked = blocked
        self.plugins: list[Plugin] = []
        self.entries: list[Entry] = []
        self.manager = pluggy.PluginManager(PROJECT)
        self.manager.add_hookspecs(hookspecs)

    def add(self, plugin: Plugin, load: Callable[[], Any]) -> Plugin:
        """Load one plug-in and note what it gives, or what is wrong with it."""
        if plugin.name in self.blocked or plugin.distribution in self.blocked:
            self.plugins.append(evolve(plugin, status="blocked", error="left out by --no-plugin"))
            return self.plugins[-1]
        entries: list[Entry] = []
        try:
            module = load()
            try:
                self._register(plugin, module)
                for entry in self._collect(plugin, module):
                    entries.append(entry)
            except BaseException:
                if self.manager.is_registered(module):
                    self.manager.unregister(module)
                raise
        except (Exception, SystemExit) as error:  # foreign code may raise anything, even exit
            plugin = evolve(plugin, status="broken", error=_words(error), exception=error)
            entries = [
                evolve(e, plugin=plugin, status="broken", error=plugin.error) for e in entries
            ]
        self.plugins.append(plugin)
        self.entries += entries
        return plugin

    def add_file(self, path: Path) -> None:
        """Load a single-file plug-in: its author asked for it, so a fault is an error."""
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        except OSError as error:
            raise PluginError(
                f"--plugin {path}: {error.strerror or error}. Give the path of a Python file."
            ) from None
        named = Plugin(path.stem, str(path), digest, from_file=True)
        plugin = self.add(named, lambda: _module_of(path, digest))
        if plugin.status == "broken":
            raise PluginError(f"--plugin {path}: {plugin.error}.") from plugin.exception

    def _register(self, plugin: Plugin, module: Any) -> None:
        if self.manager.is_registered(module):
            raise _Rubbish("another plug-in has already registered this module")
        name = f"{plugin.name} ({plugin.distribution}, {len(self.plugins)})"
        try:
            self.manager.register(module, name=name)
        except pluggy.PluginValidationError as error:
            raise _Rubbish(f"{error}: hooks take no arguments".replace("\n", " ")) from error
        hooks = [kind.hook for kind in KINDS.values()]
        found = self.manager.get_hookcallers(module) or []
        # What pluggy's check_pending() looks for, for this plug-in alone.
        for caller in found:
            if not caller.has_spec():
                raise _Rubbish(
                    f"{caller.name!r} is no hook.{did_you_mean(caller.name, hooks)} "
                    f"There are: {listed(hooks)}"
                )
        marked = {caller.name for caller in found}
        for hook in hooks:
            function = vars(module).get(hook) if isinstance(module, ModuleType) else None
            if inspect.isfunction(function) and hook not in marked:
                raise _Rubbish(f"{hook} is not marked: put @hookimpl above it")
        if not found:
            raise _Rubbish(f"it implements no hook. There are: {listed(hooks)}")

    def _collect(self, plugin: Plugin, module: Any) -> Iterator[Entry]:
        """Call this plug-in's hooks. Goes on after a fault, so that all its names are known."""
        first: Exception | None = None
        for kind, spec in KINDS.items():
            caller = getattr(self.manager.hook, spec.hook)
            for implementation in caller.get_hookimpls():
                if implementation.plugin is not module:
                    continue
                try:
                    classes = _mapping(spec.hook, implementation.function())
                except Exception as error:  # foreign code
                    first = first or error
                    continue
                for name, cls in classes.items():
                    yield Entry(kind, name, cls, plugin)
                    try:
                        _check(kind, name, cls)
                    except Exception as error:  # foreign classes may do anything when looked at
                        first = first or error
        if first is not None:
            raise first


def _mapping(hook: str, value: Any) -> Mapping[str, Any]:
    if inspect.iscoroutine(value):
        value.close()
        raise _Rubbish(f"{hook} is async: hooks are synchronous")
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and k for k in value):
        raise _Rubbish(f"{hook} returned {shown(value)}: wanted a mapping of names to classes")
    return value


def _check(kind: str, name: str, cls: Any) -> None:
    protocol = KINDS[kind].protocol
    if protocol is None:
        if not callable(cls):
            raise _Rubbish(f"{kind} {name!r} is {shown(cls)}: wanted a function of a parser")
        return
    if not isinstance(cls, type) or not attrs.has(cls):
        raise _Rubbish(
            f"{kind} {name!r} is {shown(cls)}: wanted an attrs class (attrs.define or frozen)"
        )
    methods = [m for m, f in vars(protocol).items() if inspect.isfunction(f) and m[0] != "_"]
    lacking = [m for m in methods if not callable(getattr(cls, m, None))]
    if lacking:
        raise _Rubbish(f"{kind} {name!r} ({cls.__name__}) lacks the method {listed(lacking)}")
    if any(type(value).__name__ == "_CountingAttr" for value in vars(cls).values()):
        raise _Rubbish(f"{kind} {name!r} ({cls.__name__}) has options: put @define above the class")
    option_types(cls)
    if "use" in options_of(cls):
        raise _Rubbish(f"{kind} {name!r} has an option 'use', which names the plug-in in a config")


def _installed() -> Iterator[tuple[Plugin, Callable[[], Any]]]:
    """Entry points of group "rti", by distribution. A file that does not parse is broken alone."""
    seen: set[str] = set()
    found: list[tuple[Plugin, Callable[[], Any]]] = []
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, ValueError):
            continue  # unreadable, so that nobody can say that it has plug-ins
        if not re.search(rf"^\s*\[\s*{ENTRY_POINT_GROUP}\s*\]", text, re.MULTILINE):
            continue
        name = str(distribution.metadata["Name"] or "(unnamed)")
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if normal in seen:
            continue  # the first on sys.path is the one that imports
        seen.add(normal)
        version = str(distribution.metadata["Version"] or "")
        try:
            points = distribution.entry_points.select(group=ENTRY_POINT_GROUP)
            pairs = [(p.name, p.load) for p in points]
        except Exception as error:  # importlib.metadata raises what its parser happens to meet
            wrong = _Rubbish(f"its entry_points.txt does not parse: {_words(error)}")
            pairs = [(name, _raiser(wrong))]
        found += [(Plugin(point, name, version), load) for point, load in pairs]
    # By name, the core's own first: the order must not hang on that of sys.path.
    found.sort(
        key=lambda item: (
            item[0].distribution != CORE_DISTRIBUTION,
            item[0].distribution,
            item[0].name,
        )
    )
    yield from found


def _raiser(error: Exception) -> Callable[[], Any]:
    def load() -> Any:
        raise error

    return load


def _module_of(path: Path, digest: str) -> ModuleType:
    """Import a file under a name of its own, known to `sys.modules` as attrs and typing want."""
    name = f"rti_plugin_file_{re.sub(r'[^0-9a-zA-Z_]', '_', path.stem)}_{digest}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _Rubbish("this is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _with_clashes(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Mark names given twice. Broken entries do not count; built-in commands do."""
    whole = list(entries)
    for i, entry in enumerate(whole):
        if entry.status == "broken":
            continue
        rivals = [
            other.plugin
            for j, other in enumerate(whole)
            if j != i and other.status != "broken"
            if (other.kind, other.name) == (entry.kind, entry.name)
        ]
        if entry.kind == "command" and entry.name in BUILT_IN:
            error = (
                f"command {entry.name!r} of the plug-in {entry.plugin} has the name of a built-in "
                f"command. Leave it out with --no-plugin {entry.plugin.name}"
            )
        elif rivals:
            givers = " and ".join(str(p) for p in sorted((entry.plugin, *rivals), key=str))
            error = (
                f"{entry.kind} {entry.name!r} is given by several plug-ins: {givers}. "
                f"Leave one out: --no-plugin {entry.plugin.name} (or the name of its distribution)"
            )
        else:
            continue
        whole[i] = evolve(entry, status="clash", error=error)
    return tuple(whole)


def _options(cls: type, section: PluginSection) -> Mapping[str, Any]:
    """The section's options, and those kept from another plug-in that this class has too."""
    own = options_of(cls)
    return {**{k: v for k, v in section.kept.items() if k in own}, **section.options}


def _where(section: PluginSection) -> str:
    return f"[{section.section}] ({section.use})"


def _words(error: BaseException) -> str:
    """An exception in one line, with the place it was raised at where that helps."""
    if isinstance(error, (_Rubbish, ConfigError)):
        return str(error)
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, ModuleNotFoundError) and frames:
        last = frames[-1]
        text += f" ({Path(last.filename).name}, line {last.lineno})"
    return " ".join(text.split())
