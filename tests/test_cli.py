"""The command line, mostly through `python -m rti`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fake_distributions import gate, install

import rti
from rti.cli import main

HEAVY = ("torch", "transformers", "numpy", "tau2", "matplotlib")

COMMANDS = """
from rti import NumericsError, RunError, hookimpl
from rti.commands import add_config_arguments
from rti.config import load_config

def check(parser):
    '''Read a config, 100% of it.'''
    add_config_arguments(parser)
    parser.set_defaults(run=lambda args, registry: print(load_config(args.config, args.set).run))

def fails(parser):
    parser.add_argument("how")

    def run(args, registry):
        if args.how == "run":
            raise RunError("the run met a wall: go round")
        if args.how == "numerics":
            raise NumericsError("nan")
        if args.how == "interrupt":
            raise KeyboardInterrupt
        if args.how == "seven":
            return 7
        raise ZeroDivisionError("oops")

    parser.set_defaults(run=run)

def idle(parser): ...

def explodes(parser):
    raise OSError("no terminal")

@hookimpl
def rti_commands():
    return {"check": check, "fails": fails, "idle": idle, "explodes": explodes}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(gate("mine") + COMMANDS)
    return str(path)


def run(*arguments, path=()):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *sys.path])}
    command = [sys.executable, "-m", "rti", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"rti {rti.__version__}\n")


def test_without_arguments_it_helps():
    done = run()
    assert done.returncode == 0
    for command in ("train", "eval", "intervene", "doctor", "plugins"):
        assert f"\n    {command} " in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plugins", "--json"], None])
def test_nothing_heavy_is_imported(arguments):
    call = "" if arguments is None else f"from rti.cli import main; main({arguments!r})"
    code = (
        "import sys, rti\n"
        f"try:\n    {call or 'pass'}\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_plugins_as_json(tmp_path, file):
    install(tmp_path, "rti-lengths", {"lengths_mod": gate("at-most")})
    install(tmp_path, "rti-bad", {"bad_mod": "import no_such_engine"})
    done = run("plugins", "--json", "--plugin", file, path=[tmp_path])
    assert done.returncode == 0
    rows = {(row["kind"], row["name"]): row for row in json.loads(done.stdout)}
    good = rows["gate", "at-most"]
    assert (good["plugin"], good["distribution"]) == ("lengths_mod", "rti-lengths")
    assert (good["version"], good["status"], good["error"]) == ("1.2", "ok", None)
    assert good["doc"] == "Refuses long corrections."
    assert good["options"][0] == {
        "name": "tokens",
        "type": "int",
        "default": 64,
        "doc": "Most tokens.",
    }
    bad = rows["plugin", "bad_mod"]
    assert (bad["distribution"], bad["status"]) == ("rti-bad", "broken")
    assert "no_such_engine" in bad["error"]
    assert rows["command", "check"]["distribution"] == file


def test_plugins_for_people(tmp_path):
    install(tmp_path, "rti-a", {"mod_a": gate("same", "A")})
    install(tmp_path, "rti-b", {"mod_b": gate("same", "B")})
    install(tmp_path, "rti-bad", {"bad_mod": "import no_such_engine"})
    done = run("plugins", path=[tmp_path])
    assert (done.returncode, done.stderr) == (0, "")
    assert "broken: plug-in 'bad_mod' of rti-bad 1.2\n  ModuleNotFoundError" in done.stdout
    assert "clash: gate 'same' is given by several plug-ins: 'mod_a' of rti-a" in done.stdout
    page = run("--no-plugin", "mod_b", "plugins", "gate", "--no-plugin", "rti-bad", path=[tmp_path])
    assert "tokens: int = 64\n        Most tokens." in page.stdout
    assert "clash" not in page.stdout
    assert "broken: plug-in 'bad_mod'" not in page.stdout
    assert "Did you mean 'gate'" in run("plugins", "gates").stderr


def test_a_broken_plugin_never_breaks_the_command_line(tmp_path):
    install(tmp_path, "rti-bad", {"bad_mod": "raise SystemExit('gone')"})
    for arguments in ([], ["--help"], ["plugins"], ["plugins", "--help"]):
        assert run(*arguments, path=[tmp_path]).returncode == 0


def test_commands_of_plugins_and_global_options_on_both_sides(tmp_path, file, capsys):
    second = tmp_path / "second.py"
    second.write_text(gate("second"))
    assert main(["--plugin", file, "plugins", "--plugin", str(second), "--json"]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert {"mine", "second", "check"} <= names
    with pytest.raises(SystemExit) as left:
        main(["--plugin", file, "--help"])
    assert left.value.code == 0
    assert "Read a config, 100% of it." in capsys.readouterr().out
    config = tmp_path / "run.toml"
    config.write_text('[environment]\nuse = "desk"\n')
    assert main(["check", "--plugin", file, str(config), "--set", "run.seed=5"]) == 0
    assert "seed=5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fails", "run"], 1, "rti: the run met a wall: go round\n"),
        (["fails", "numerics"], 1, "rti: nan\n"),
        (["fails", "interrupt"], 130, "rti: interrupted\n"),
        (["fails", "seven"], 7, ""),
        (["fails", "bug"], 1, "rti: ZeroDivisionError: oops\nThis is a bug in rti or in a plug-in"),
        (["check", "gone.toml"], 2, "rti: gone.toml: there is no such file."),
        (["idle"], 2, "command 'idle' of the plug-in 'mine'"),
        (["explodes"], 2, "command 'explodes' of the plug-in 'mine'"),
        (["chekc"], 2, "rti: there is no command 'chekc'. Did you mean 'check'?"),
        (["plugins", "--no-plugin", "mien"], 2, "no such plug-in. Did you mean 'mine'?"),
        (["plugins", "--plugin", "gone.py"], 2, "No such file or directory"),
    ],
)
def test_exit_codes_and_messages(file, capsys, arguments, code, message):
    assert main([*arguments, "--plugin", file]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_traceback_is_shown_when_asked_for(file, capsys):
    assert main(["--traceback", "fails", "bug", "--plugin", file]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_usage_errors_exit_with_2(file):
    for arguments in (["check"], ["plugins", "--what"], ["--what"], ["plugins", "--plugin"]):
        done = run(*arguments, "--plugin", file) if arguments[-1] != "--plugin" else run(*arguments)
        assert done.returncode == 2
        assert "usage: rti" in done.stderr
        assert "Traceback" not in done.stderr


def test_bytes_that_are_no_text_do_not_break_the_message():
    done = subprocess.run([sys.executable, "-m", "rti", b"\xff"], capture_output=True)
    assert done.returncode == 2
    assert b"there is no command" in done.stderr


def test_a_letter_that_the_output_does_not_have_is_escaped():
    code = "from rti.cli import main; main(['--version']); print('τ \\udce9')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("latin-1").splitlines()[-1] == "\\u03c4 \\udce9"


def test_a_reader_that_leaves_is_no_traceback():
    command = f"{sys.executable} -m rti plugins --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
