"""A single-file plug-in for tests of `rti doctor`: parts with one fault each, on purpose."""

from __future__ import annotations

import asyncio
import json
import math
import os

from attrs import define, evolve, field, frozen

from rti import Context, Diagnosis, Message, ToolCall, Validator, at_least, hookimpl, option
from rti_hf.policy import HfPolicy
from rti_hf.trainer import HfTrainer
from rti_pocket.environment import PocketEnvironment, PocketSession

END = 256

# --- renderers: UTF-8 bytes, tools and calls as JSON lines ----------------------------------------


@define
class Bytes:
    """A renderer without a fault."""

    def bind(self, context: Context) -> None:
        """Bytes need no tokenizer."""

    @property
    def stop_ids(self):
        return (END,)

    def encode(self, text):
        return tuple(text.encode())

    def decode(self, ids):
        return b"".join(b"<end>" if i == END else bytes([i]) for i in ids).decode(errors="replace")

    def prompt(self, messages, tools=()):
        ids = list(self.encode(self.listing(tools)))
        for message in messages:
            ids += self.encode(f"{message.role}: ")
            ids += self.past(message) if message.role == "assistant" else self.seen(message)
            ids += self.encode("\n")
        return (*ids, *self.encode("assistant: "))

    def listing(self, tools):
        return "".join(f"tool {t.name}\n" for t in tools if t.owner == "agent")

    def seen(self, message):
        return self.encode(message.content)

    def past(self, message):
        ids = message.token_ids if message.token_ids is not None else self.turn(message)
        return ids if ids[-1:] == (END,) else (*ids, END)

    def turn(self, message):
        said = [f"<{message.reasoning}>" * bool(message.reasoning) + message.content]
        said += [
            json.dumps([c.name, dict(c.arguments)], ensure_ascii=False) for c in message.tool_calls
        ]
        return (*self.encode("\x00".join(said)), END)

    def parse(self, ids):
        content, *calls = self.decode([i for i in ids if i != END]).split("\x00")
        thought = ""
        if content.startswith("<") and ">" in content:
            thought, _, content = content[1:].partition(">")
        read = []
        for i, call in enumerate(calls):
            try:
                name, arguments = json.loads(call)
            except ValueError:
                continue
            read.append(ToolCall(name, arguments, str(i)))
        return Message("assistant", content, thought, tuple(read), token_ids=tuple(ids))

    def extends(self, before, after):
        return tuple(after[: len(before)]) == tuple(before)


@define
class DropsTools(Bytes):
    """A template that never mentions tools."""

    def listing(self, tools):
        return ""


@define
class LosesCalls(Bytes):
    """Calls are written, and read as text."""

    def parse(self, ids):
        return evolve(Bytes.parse(self, ids), tool_calls=())


@define
class Ascii(Bytes):
    """Letters beyond ASCII become question marks."""

    def encode(self, text):
        return tuple(text.encode("ascii", "replace"))


@define
class Forgets(Bytes):
    """Thoughts of old turns are stripped, as by some chat templates."""

    def past(self, message):
        ids = Bytes.past(self, message)
        close = ord(">")
        return ids[ids.index(close) + 1 :] if ids[:1] == (ord("<"),) and close in ids else ids


@define
class Rewrites(Bytes):
    """Old turns are written again from text, with spaces around."""

    def past(self, message):
        return (*self.encode(" "), *Bytes.past(self, message))


@define
class Endless(Bytes):
    """No token ends a turn."""

    @property
    def stop_ids(self):
        return ()


@define
class Forgeable(Bytes):
    """Text that looks like the end of a turn is one."""

    def seen(self, message):
        before, *rest = message.content.split("<end>")
        ids = list(self.encode(before))
        for text in rest:
            ids += (END, *self.encode(text))
        return tuple(ids)


@define
class Breaks(Bytes):
    """Cannot be bound."""

    def bind(self, context: Context) -> None:
        raise KeyError("vocabulary")


# --- policies and trainers: the real small model, with a fault ------------------------------------


@define
class Shifted(HfPolicy):
    """Scores are off by `by` nats."""

    by: float = option(0.3, "How far.", at_least(0))

    async def score(self, prompts, completions, version):
        found = await HfPolicy.score(self, prompts, completions, version)
        return [tuple(x - self.by for x in row) for row in found]


@define
class NotANumber(HfPolicy):
    """Scores are not numbers."""

    async def score(self, prompts, completions, version):
        return [(math.nan,) * len(c) for c in completions]


@define
class Moody(HfPolicy):
    """Says something else when it is asked again."""

    asked: set = field(init=False, factory=set)

    async def sample(self, prompts, params, keys, stop):
        found = await HfPolicy.sample(self, prompts, params, keys, stop)
        if self.asked & set(keys):
            found = [evolve(c, token_ids=(*c.token_ids[:-1], 5)) for c in found]
        self.asked |= set(keys)
        return found


@define
class Stale(HfPolicy):
    """Stamps completions with another version."""

    async def sample(self, prompts, params, keys, stop):
        found = await HfPolicy.sample(self, prompts, params, keys, stop)
        return [evolve(c, policy_version=7) for c in found]


@define
class CannotLoad(HfPolicy):
    """No weights may be loaded here."""

    def bind(self, context: Context) -> None:
        raise AssertionError("weights were loaded")


@define
class ShiftedTrainer(HfTrainer):
    """Scores are off by `by` nats."""

    by: float = option(0.3, "How far.", at_least(0))

    def score(self, prompts, completions):
        return [tuple(x - self.by for x in r) for r in HfTrainer.score(self, prompts, completions)]


@define
class Scoreless:
    """A trainer that cannot score, and supports nothing."""

    def supports(self, objective):
        return False

    def step(self, batch):
        return {}

    def weights(self):
        return {}

    def save(self, folder):
        pass

    def restore(self, folder):
        pass


# --- roles that can be asked ----------------------------------------------------------------------


@define
class Asked:
    """A Validator whose means lie elsewhere: `check` gives what the option says."""

    says: str = option("ok", "Level of its answer.")
    base_url: str = option("", "Where.")
    key_env: str = option("", "Which key.")

    async def validate(self, turn, history, evidence):
        return Diagnosis(False)

    async def check(self):
        if self.says == "never":
            await asyncio.sleep(3600)
        if self.says == "crash":
            raise ZeroDivisionError("of the role")
        return [(self.says, "the far end was asked")]


@frozen
class Looks:
    """A Validator that needs observations, and says so."""

    needs_observations = True

    async def validate(self, turn, history, evidence):
        return Diagnosis(False)


assert issubclass(Looks, Validator)

# --- environments ---------------------------------------------------------------------------------


class SharesItsState(PocketSession):
    """A fork that is no fork."""

    async def fork(self, k):
        return self


@frozen
class Broken(PocketEnvironment):
    """Sessions share their state, and the evidence gives the answer away."""

    leaks_by_design = False

    async def start(self, task):
        return SharesItsState(task.data["task"])


@frozen
class Crashes(PocketEnvironment):
    """Cannot list its tasks."""

    def tasks(self, split):
        raise ValueError("no such table")


@frozen
class Served(PocketEnvironment):
    """Its sessions would ask a server; its stand-in asks none. `check` says $SERVED_SAYS."""

    async def start(self, task):
        raise AssertionError("the server was asked")

    def rehearsal(self):
        return PocketEnvironment(train_tasks=self.train_tasks, test_tasks=self.test_tasks)

    async def check(self):
        return await Asked(os.environ["SERVED_SAYS"]).check()


@hookimpl
def rti_renderers():
    return {
        "bytes": Bytes,
        "drops-tools": DropsTools,
        "loses-calls": LosesCalls,
        "ascii": Ascii,
        "forgets": Forgets,
        "rewrites": Rewrites,
        "endless": Endless,
        "forgeable": Forgeable,
        "breaks": Breaks,
    }


@hookimpl
def rti_policies():
    return {
        "shifted": Shifted,
        "not-a-number": NotANumber,
        "moody": Moody,
        "stale": Stale,
        "cannot-load": CannotLoad,
    }


@hookimpl
def rti_trainers():
    return {"shifted": ShiftedTrainer, "scoreless": Scoreless}


@hookimpl
def rti_validators():
    return {"asked": Asked, "looks": Looks}


@hookimpl
def rti_environments():
    return {"broken": Broken, "crashes": Crashes, "served": Served}
