"""Echo through the doors that any plug-in has: `rti`'s public names and its command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import rti_echo

from rti import Diagnosis, History, Message, ToolCall, Turn
from rti.testing import check_corrector

FILE = Path(rti_echo.__file__)
END = 256


class Bytes:
    """A renderer of the plainest kind: UTF-8 bytes, reasoning before a newline, and an end."""

    stop_ids = (END,)

    def encode(self, text):
        return tuple(text.encode())

    def decode(self, ids):
        return bytes(i for i in ids if i < END).decode(errors="replace")

    def turn(self, message):
        return (*self.encode(f"{message.reasoning}\n{message.content}"), END)

    def parse(self, ids):
        reasoning, _, content = self.decode(ids).partition("\n")
        return Message("assistant", content, reasoning, token_ids=tuple(ids))


def bound(**options):
    echo = rti_echo.Echo(**options)
    echo.bind(SimpleNamespace(renderer=Bytes()))
    return echo


def correct(echo, direction):
    draft = Message("assistant", "", "I test it.", (ToolCall("run_speed_test"),))
    turn = Turn(0, (1,), (2, END), (-0.1, -0.1), draft)
    diagnosis = Diagnosis(True, "wrong-side", direction)
    return asyncio.run(echo.correct(turn, diagnosis, History((), (1,)), ()))


def test_it_says_the_direction_and_keeps_the_reasoning():
    correction = correct(bound(), " Ask the customer to run it. ")
    assert correction.message.content == "Ask the customer to run it."
    assert correction.message.reasoning == "I test it."
    assert correction.message.tool_calls == ()
    assert correction.completion_ids == (*b"I test it.\nAsk the customer to run it.", END)
    assert correction.corrector_prompt_ids is None
    assert correction.provenance.kind == "correction"


def test_the_words_around_it_are_an_option():
    correction = correct(bound(say="Please: {direction}"), "run it")
    assert correction.message.content == "Please: run it"


def test_it_has_nothing_to_say_without_a_direction():
    assert correct(bound(), "  ") is None


def test_a_text_without_a_slot_is_refused():
    with pytest.raises(ValueError, match=r"say = 'no': must be a text with \{direction\}"):
        rti_echo.Echo(say="no")


def test_it_keeps_the_contract_of_correctors():
    check_corrector(bound())


def listed(*arguments):
    command = [sys.executable, "-m", "rti", "plugins", "corrector", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [
        row
        for row in json.loads(done.stdout)
        if (row["kind"], row["name"]) == ("corrector", "echo")
    ]


def installed():
    return any(d.metadata["Name"] == "rti-echo" for d in metadata.distributions())


@pytest.mark.skipif(not installed(), reason="rti-echo is not installed")
def test_installed_it_is_found():
    (row,) = listed()
    assert (row["distribution"], row["version"], row["status"]) == ("rti-echo", "0.1.0", "ok")
    assert [option["name"] for option in row["options"]] == ["say"]


def test_it_is_a_single_file_too():
    without = ["--no-plugin", "rti-echo"] if installed() else []
    (row,) = listed("--plugin", str(FILE), *without)
    assert (row["plugin"], row["distribution"], row["status"]) == ("rti_echo", str(FILE), "ok")
