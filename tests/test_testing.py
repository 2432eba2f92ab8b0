"""The conformance checks: sound plug-ins pass, and each broken contract is named."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rti import (
    CannotFork,
    Correction,
    Decision,
    Diagnosis,
    Environment,
    Evidence,
    Group,
    Intervention,
    Message,
    Privileged,
    Provenance,
    Renderer,
    Rollout,
    Session,
    Step,
    Task,
    ToolCall,
    Turn,
    Verdict,
)
from rti.testing import (
    check_corrector,
    check_environment,
    check_gate,
    check_objective,
    check_renderer,
    check_trigger,
    check_validator,
    check_verifier,
    check_weighter,
    groups,
    ids,
    interventions,
    logprobs,
    messages,
    rollouts,
    turns,
)

# ------------------------------------------------------------------ strategies


@settings(deadline=None, max_examples=30)
@given(turns(executed=True), turns(executed=False), rollouts(outcome=1.0), groups(min_size=2))
def test_strategies_keep_their_promises(a: Turn, b: Turn, rollout: Rollout, group: Group) -> None:
    assert len(a.completion_ids) == len(a.rollout_logprobs) > 0
    assert a.message.token_ids == a.completion_ids
    assert a.observations is not None
    assert [m.tool_call_id for m in a.observations] == [c.id for c in a.message.tool_calls]
    assert b.observations is None
    assert rollout.success
    assert [turn.index for turn in rollout.turns] == list(range(len(rollout.turns)))
    assert [r.index for r in group.rollouts] == list(range(len(group.rollouts)))
    assert len(group.rollouts) >= 2
    assert all(r.task == group.task for r in group.rollouts)


@settings(deadline=None, max_examples=30)
@given(interventions())
def test_interventions_are_scored_throughout(drawn: Intervention) -> None:
    assert drawn.correction is not None
    assert drawn.rollout_logprobs is not None
    assert drawn.draft is not None
    assert drawn.history is not None
    length = len(drawn.correction.completion_ids)
    assert len(drawn.rollout_logprobs) == length
    assert (drawn.corrector_logprobs is None) == (drawn.correction.corrector_prompt_ids is None)
    if drawn.corrector_logprobs is not None:
        assert len(drawn.corrector_logprobs) == length
    assert drawn.draft.prompt_ids == drawn.history.prompt_ids


@settings(deadline=None)
@given(st.data(), st.integers(0, 5))
def test_small_strategies(data: st.DataObject, length: int) -> None:
    drawn = data.draw(logprobs(length))
    assert len(drawn) == length
    assert all(x <= 0 for x in drawn)
    assert all(0 <= i < 7 for i in data.draw(ids(vocab_size=7)))
    assert data.draw(messages("tool")).role == "tool"


COUNTER = itertools.count(1)
"""What an impure plug-in looks at."""


def breaks(check: Callable[[], None], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check()


# ------------------------------------------------------------------ numbers


class Obj:
    """A plug-in with one method given as a function."""

    def __init__(self, **methods: Any) -> None:
        vars(self).update(methods)


@pytest.mark.parametrize(
    ("admit", "says"),
    [
        (lambda i: True, "admit gave True of type bool: must be Decision"),
        (lambda i: Decision(1, 0.0, 1.0), "Decision.admitted gave 1 of type int"),  # type: ignore[arg-type]
        (
            lambda i: Decision(True, float("nan"), 1.0),
            r"(Decision.value must be a number|not pure)",
        ),
        (lambda i: Decision(True, 0.0, None), "Decision.threshold"),  # type: ignore[arg-type]
        (lambda i, n=COUNTER: Decision(True, next(n), 1.0), "admit is not pure"),
    ],
)
def test_broken_gates(admit: Any, says: str) -> None:
    breaks(lambda: check_gate(Obj(admit=admit)), says)


def test_a_gate_may_have_an_infinite_threshold() -> None:
    check_gate(Obj(admit=lambda i: Decision(True, 2.0, float("inf"))))


@pytest.mark.parametrize(
    ("weigh", "says"),
    [
        (lambda i: [1.0] * len(i.rollout_logprobs), "weigh gave .* must be tuple"),
        (lambda i: (1.0,), "weigh gave 1 weights for a correction of"),
        (lambda i: (0.0,) * len(i.rollout_logprobs), "weight 0 is 0.0"),
        (lambda i: (float("inf"),) * len(i.rollout_logprobs), "weight 0 is inf"),
    ],
)
def test_broken_weighters(weigh: Any, says: str) -> None:
    breaks(lambda: check_weighter(Obj(weigh=weigh)), says)


def test_a_weighter_must_cope_without_a_corrector_prompt() -> None:
    weigh = lambda i: tuple(c - r + 99 for c, r in zip(i.corrector_logprobs, i.rollout_logprobs))  # noqa: B905, E731
    with pytest.raises(TypeError):
        check_weighter(Obj(weigh=weigh))


@pytest.mark.parametrize(
    ("fires", "says"),
    [
        (lambda g: None, "fires gave None of type NoneType: must be bool"),
        (lambda g: bool(g.rollouts) and not g.rollouts[0].success, "depends on the order"),
        (lambda g: not any(r.success for r in g.rollouts), "infrastructure faults are no reason"),
        (lambda g, n=COUNTER: bool(next(n) % 2), "fires is not pure"),
    ],
)
def test_broken_triggers(fires: Any, says: str) -> None:
    breaks(lambda: check_trigger(Obj(fires=fires)), says)


def test_what_a_trigger_resamples_is_checked_too() -> None:
    def check(**changes: Any) -> None:
        check_trigger(Obj(fires=lambda g: False, **changes), examples=12)

    check(resample=lambda g: g.all_failed, rounds=1)
    breaks(lambda: check(resample=lambda g: False), "rounds is None")
    breaks(lambda: check(resample=lambda g: True, rounds=2), "resample on a group without rollouts")
    first = {"resample": lambda g: bool(g.rollouts) and g.rollouts[0].success, "rounds": 1}
    breaks(lambda: check(**first), "resample depends on the order")


def centred(group: Group) -> tuple[float, ...]:
    outcomes = group.outcomes_G
    if len(set(outcomes)) == 1:
        return (0.0,) * len(outcomes)
    return tuple(o - sum(outcomes) / len(outcomes) for o in outcomes)


def reinforce(logprobs: Any, rollout_logprobs: Any, advantages: Any) -> Any:
    return -logprobs * advantages


def objective(**changes: Any) -> Any:
    return Obj(
        **{
            "needs": (),
            "aggregate": "token",
            "advantages": centred,
            "token_loss": reinforce,
            **changes,
        }
    )


def test_a_sound_objective_passes() -> None:
    check_objective(objective())
    seen = []

    def told(n: Any, o: Any, a: Any, *, demonstrations: Any, teacher: Any) -> Any:
        seen.append((set(demonstrations.flatten().tolist()), bool((teacher <= 0).all())))
        return -n * a * demonstrations + teacher

    needs = ("demonstrations", "teacher")
    check_objective(objective(needs=needs, token_loss=told), examples=10)
    assert set().union(*(flags for flags, _ in seen)) == {0.0, 1.0}
    assert all(logprobs for _, logprobs in seen)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"needs": "teacher"}, "needs must be a sequence of names"),
        (
            {
                "needs": ("teacher",),
                "token_loss": lambda n, o, a, teacher: -n * a * teacher.fill_(1.0),
            },
            "token_loss changed its inputs",
        ),
        ({"aggregate": "mean"}, "aggregate is 'mean'"),
        ({"advantages": lambda g: (0.0,)}, "advantages gave 1 numbers for"),
        ({"advantages": lambda g: (float("inf"),) * len(g.rollouts)}, "not finite"),
        (
            {"advantages": lambda g: tuple(o - g.outcomes_G[0] for o in g.outcomes_G)},
            "do not follow the rollouts",
        ),
        ({"advantages": lambda g: g.outcomes_G}, "group of equal outcomes must be 0"),
        ({"token_loss": lambda n, o, a: (-n * a).mean()}, r"gave shape \(\) for inputs"),
        ({"token_loss": lambda n, o, a: -n.detach() * a}, "no gradient"),
        ({"token_loss": lambda n, o, a: n / 0.0}, "not finite"),
        (
            {"token_loss": lambda n, o, a, c=COUNTER: -n * a + next(c)},
            "token_loss is not pure",
        ),
        ({"token_loss": lambda n, o, a: -n * a.fill_(1.0)}, "token_loss changed its inputs"),
    ],
)
def test_broken_objectives(changes: dict[str, Any], says: str) -> None:
    breaks(lambda: check_objective(objective(**changes)), says)


# ------------------------------------------------------------------ roles


def role(method: str, answer: Callable[..., Any]) -> Any:
    async def call(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return answer(*arguments)

    return Obj(**{method: call})


def ask(draft: Turn, *_: Any) -> Correction:
    message = Message("assistant", "please run it", token_ids=(5, 6))
    return Correction((5, 6), message)


def test_sound_roles_pass() -> None:
    check_validator(role("validate", lambda turn, history, evidence: Diagnosis(True, "x")))
    check_corrector(role("correct", ask))
    check_corrector(role("correct", lambda *_: None))
    check_verifier(role("verify", lambda *_: Verdict(False, "no", parsed=False)))


def spoil(*arguments: Any) -> Diagnosis:
    evidence = arguments[-1]
    evidence.facts["spoiled"] = True
    return Diagnosis(False)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda *_: None, "validate gave None"),
        (lambda *_: Diagnosis("yes"), "Diagnosis.harmful gave 'yes'"),  # type: ignore[arg-type]
        (lambda *_: Diagnosis(True, parsed=False), "must not count as harmful"),
        (spoil, "validate changed its input"),
        (lambda turn, *_: Diagnosis(any(m.error for m in turn.observations)), None),
    ],
)
def test_broken_validators(answer: Any, says: str | None) -> None:
    validator = role("validate", answer)
    if says is None:  # it does not expect `when = "before_step"`
        with pytest.raises(TypeError):
            check_validator(validator)
    else:
        breaks(lambda: check_validator(validator), says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda *_: Message("assistant", "hi"), "correct gave .* must be Correction"),
        (lambda d, *_: evolve(ask(d), completion_ids=()), "completion_ids is .*not empty"),
        (lambda d, *_: evolve(ask(d), completion_ids=[5, 6]), "must be a tuple of token ids"),
        (lambda d, *_: evolve(ask(d), corrector_prompt_ids=()), "corrector_prompt_ids is"),
        (lambda d, *_: evolve(ask(d), completion_ids=(5, 7)), "are other ids than completion_ids"),
        (lambda d, *_: evolve(ask(d), message=Message("user", "hi")), "must be the assistant's"),
        (lambda d, *_: evolve(ask(d), provenance=Provenance()), "pass for the policy's"),
    ],
)
def test_broken_correctors(answer: Any, says: str) -> None:
    breaks(lambda: check_corrector(role("correct", answer)), says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda *_: True, "verify gave True"),
        (lambda *_: Verdict(1), "Verdict.accepted gave 1"),  # type: ignore[arg-type]
        (lambda *_: Verdict(True, parsed=False), "must not count as accepted"),
    ],
)
def test_broken_verifiers(answer: Any, says: str) -> None:
    breaks(lambda: check_verifier(role("verify", answer)), says)


def test_all_examples_share_one_event_loop() -> None:
    loops = set()

    async def validate(*_: Any) -> Diagnosis:
        loops.add(id(asyncio.get_running_loop()))
        return Diagnosis(False)

    check_validator(Obj(validate=validate))
    assert len(loops) == 1


@settings(deadline=None, max_examples=2, suppress_health_check=list(HealthCheck))
@given(st.booleans())
def test_a_check_may_be_called_from_a_property_test(fires: bool) -> None:
    check_trigger(Obj(fires=lambda g: bool(g.rollouts) and fires), examples=5)


# ------------------------------------------------------------------ environment


@define
class Lock:
    """A lock of three digits, one turned at a time; a right digit clicks."""

    task: Task
    env: Any
    opening: tuple[Message, ...] = (Message("user", "open the lock"),)
    tools: tuple[Any, ...] = ()
    state: dict[str, Any] = field(factory=lambda: {"digits": [], "luck": 0.0, "closed": False})
    log: list[Turn] = field(factory=list)
    generator: random.Random = field(factory=lambda: random.Random(7))

    async def step(self, turn: Turn) -> Step:
        digit = int(turn.message.content) if turn.message.content.isdigit() else -1
        self.state["digits"].append(digit)
        self.state["luck"] = self.generator.random()
        self.log.append(turn)
        clicks = digit == self.task.data["code"][len(self.state["digits"]) - 1]
        done = len(self.state["digits"]) == 3
        return Step((Message("tool", f"{clicks} {self.state['luck']:.3f}"),), done=done)

    async def fork(self, k: int) -> Session:
        fresh = await self.env.start(self.task)
        for turn in self.log[:k]:
            await fresh.step(turn)
        return fresh  # type: ignore[no-any-return]

    def state_digest(self) -> str:
        shown = (self.state["digits"], self.state["luck"])
        return hashlib.sha256(repr(shown).encode()).hexdigest()

    def evidence(self, k: int) -> Evidence:
        return Evidence("all three digits click")

    def privileged(self) -> Privileged:
        return Privileged(("".join(map(str, self.task.data["code"])),))

    def score(self) -> float:
        return float(self.state["digits"] == list(self.task.data["code"]))

    async def close(self) -> None:
        self.state["closed"] = True


@frozen
class Locks:
    session: Callable[..., Any] = Lock
    threshold: float = 1.0
    leaks_by_design: bool = False

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(f"lock-{i}", split=split, data={"code": (i, 2, 5)}) for i in range(4)]

    async def start(self, task: Task) -> Session:
        return self.session(task, self)  # type: ignore[no-any-return]

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        if name != "gold":
            return None

        def gold(session: Any) -> Message:
            return Message("assistant", str(session.task.data["code"][len(session.log)]))

        return gold


def test_a_sound_environment_passes() -> None:
    locks = Locks()
    assert isinstance(locks, Environment)
    asyncio.run(check_environment(locks))


def test_an_environment_may_say_that_it_cannot_fork() -> None:
    class Stuck(Lock):
        async def fork(self, k: int) -> Session:
            raise CannotFork("a live web site")

    asyncio.run(check_environment(Locks(Stuck)))


class SharesState(Lock):
    """Its forks keep the original's state object."""

    async def fork(self, k: int) -> Session:
        fork: Any = await super().fork(k)
        if k == len(self.log):
            fork.state = self.state
        return fork  # type: ignore[no-any-return]


class SharesWithSiblings(Lock):
    """Two forks at one turn are one object."""

    _kept: Any = {}  # noqa: RUF012

    async def fork(self, k: int) -> Session:
        key = (id(self), k)
        if key not in self._kept:
            self._kept[key] = await super().fork(k)
        return self._kept[key]  # type: ignore[no-any-return]


class ForksLate(Lock):
    async def fork(self, k: int) -> Session:
        return await super().fork(k + 1)


class ForgetsTheGenerator(Lock):
    """Its forks have the right state but draw other luck afterwards."""

    async def fork(self, k: int) -> Session:
        fork: Any = await super().fork(k)
        if k:
            fork.generator = random.Random(8)
        return fork  # type: ignore[no-any-return]


class ForksOnlyOnce(Lock):
    """A fork forgets the turns it was forked after, and so cannot be forked again."""

    async def fork(self, k: int) -> Session:
        fork: Any = await super().fork(k)
        fork.log.clear()
        return fork  # type: ignore[no-any-return]


class Random(Lock):
    def __init__(self, task: Task, env: Any) -> None:
        super().__init__(task, env, generator=random.SystemRandom())


class StartsAnyhow(Lock):
    def __init__(self, task: Task, env: Any) -> None:
        super().__init__(task, env)
        self.state["luck"] = random.SystemRandom().random()


class TooGenerous(Lock):
    def score(self) -> float:
        return 2.0


class Moody(Lock):
    def score(self) -> float:
        self.state["scored"] = self.state.get("scored", 0) + 1
        return 1.0 / self.state["scored"]


class LooksAreNotFree(Lock):
    def evidence(self, k: int) -> Evidence:
        self.state["luck"] += 1
        return super().evidence(k)


class BlindDigest(Lock):
    def state_digest(self) -> str:
        return str(len(self.log))


class ClosesOnce(Lock):
    async def close(self) -> None:
        if self.state["closed"]:
            raise ValueError("already closed")
        await super().close()


class NeverOpens(Lock):
    def score(self) -> float:
        return 0.0


class ClosesTheOthers(Lock):
    """Its forks share a server that closing one of them shuts down."""

    def __init__(self, task: Task, env: Any) -> None:
        super().__init__(task, env)
        self.server: dict[str, bool] = {"up": True}

    async def fork(self, k: int) -> Session:
        fork: Any = await super().fork(k)
        fork.server = self.server
        return fork  # type: ignore[no-any-return]

    def state_digest(self) -> str:
        return super().state_digest() if self.server["up"] else "down"

    async def close(self) -> None:
        self.server["up"] = False


@pytest.mark.parametrize(
    ("session", "says"),
    [
        (SharesState, "a fork shares state with the session it came from"),
        (SharesWithSiblings, "shares state with another fork"),
        (ForksLate, "is not in the state before that turn"),
        (ForgetsTheGenerator, "before turn 1 answers turn 1 differently"),
        (ForksOnlyOnce, "cannot itself be forked at that turn"),
        (Random, "a second session answers turn 0 differently"),
        (StartsAnyhow, "start in two states"),
        (TooGenerous, r"score gave 2.0: outcomes lie in \[0, 1\]"),
        (Moody, "score differs between two calls"),
        (LooksAreNotFree, "the state changes while nobody steps"),
        (BlindDigest, "different outcomes have one state_digest"),
        (ClosesOnce, "close called twice raises ValueError"),
        (NeverOpens, "the gold reference must succeed"),
        (ClosesTheOthers, "when closed, takes its fork with it"),
    ],
)
def test_broken_sessions(session: Any, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        asyncio.run(check_environment(Locks(session)))


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        (lambda split: [], "is empty"),
        (lambda split, n=COUNTER: [Task(f"t{next(n)}")], "differs between two calls"),
        (lambda split: [Task("t"), Task("t")], "two tasks of one id"),
    ],
)
def test_broken_task_lists(tasks: Any, says: str) -> None:
    class Broken(Locks):
        def tasks(self, split: str) -> Sequence[Task]:
            return tasks(split)  # type: ignore[no-any-return]

    with pytest.raises(AssertionError, match=says):
        asyncio.run(check_environment(Broken()))


def test_a_threshold_out_of_range() -> None:
    with pytest.raises(AssertionError, match=r"threshold is 0.0"):
        asyncio.run(check_environment(Locks(threshold=0.0)))


# ------------------------------------------------------------------ renderer


class Words:
    """A renderer of one word a token: role, words, end. Reasoning comes in (brackets)."""

    END = 0
    stop_ids: tuple[int, ...] = (END,)

    def __init__(self) -> None:
        words = "system user assistant tool ( ) call hello speed ask reboot slow x"
        self.words = ["<end>", *words.split()]

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.words.index(word) for word in text.split())

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.words[i] for i in ids)

    def body(self, message: Message) -> tuple[int, ...]:
        if message.token_ids is not None:
            return message.token_ids
        reasoning = f"( {message.reasoning} )" if message.reasoning else ""
        calls = " ".join(f"call {call.name}" for call in message.tool_calls)
        return (*self.encode(f"{reasoning} {message.content} {calls}"), self.END)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[int, ...]:
        said = [(*self.encode(m.role), *self.body(m)) for m in messages]
        return (*itertools.chain(*said), *self.encode("assistant"))

    def turn(self, message: Message) -> tuple[int, ...]:
        return self.body(message)

    def parse(self, ids: Iterable[int]) -> Message:
        ids = tuple(ids)
        words = self.decode(i for i in ids if i != self.END).split()
        reasoning, calls, content = [], [], []
        inside = False
        for i, word in enumerate(words):
            if word in "()":
                inside = word == "("
            elif i and words[i - 1] == "call":
                calls.append(ToolCall(word, id=str(len(calls))))
            elif word != "call":
                (reasoning if inside else content).append(word)
        return Message(
            "assistant",
            " ".join(content),
            reasoning=" ".join(reasoning),
            tool_calls=tuple(calls),
            token_ids=ids,
        )

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        return tuple(after[: len(before)]) == tuple(before)


CONVERSATIONS = [
    [
        Message("system", "hello"),
        Message("user", "slow"),
        Message("assistant", "ask", reasoning="slow speed", tool_calls=(ToolCall("reboot"),)),
        Message("tool", "x"),
        Message("assistant", "hello", reasoning="ask"),
    ]
]


def test_a_sound_renderer_passes() -> None:
    assert isinstance(Words(), Renderer)
    check_renderer(Words(), CONVERSATIONS)


class StripsOldReasoning(Words):
    """As some chat templates do."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[int, ...]:
        kept = [evolve(m, reasoning="", token_ids=None) for m in messages]
        return super().prompt(kept, tools)


class Rerenders(Words):
    """Right as long as the text renders to the very ids that were sampled."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[int, ...]:
        return super().prompt([evolve(m, token_ids=None) for m in messages], tools)


class NoEnd(Words):
    def turn(self, message: Message) -> tuple[int, ...]:
        return super().turn(message)[:-1]


class DropsCalls(Words):
    def turn(self, message: Message) -> tuple[int, ...]:
        return super().turn(evolve(message, tool_calls=()))


class ForgetsIds(Words):
    def parse(self, ids: Iterable[int]) -> Message:
        return evolve(super().parse(ids), token_ids=None)


class Strict(Words):
    def parse(self, ids: Iterable[int]) -> Message:
        ids = tuple(ids)
        if not ids or ids[-1] != self.END:
            raise ValueError("no end of turn")
        return super().parse(ids)


class SaysYes(Words):
    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        return True


class SaysNo(Words):
    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        return False


class Lists(Words):
    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> Any:
        return list(super().prompt(messages, tools))


@pytest.mark.parametrize(
    ("renderer", "says"),
    [
        (StripsOldReasoning, "message 2: its token_ids are not inserted verbatim"),
        (Rerenders, "are not inserted verbatim"),
        (NoEnd, "turn does not end in one of stop_ids"),
        (DropsCalls, r"parse\(turn\(m\)\) says"),
        (ForgetsIds, "parse must set token_ids"),
        (Strict, "raises ValueError"),
        (SaysYes, "extends says that ids extend longer ids"),
        (SaysNo, "extends denies"),
        (Lists, "prompt is .* must be a tuple of token ids"),
    ],
)
def test_broken_renderers(renderer: Any, says: str) -> None:
    breaks(lambda: check_renderer(renderer(), CONVERSATIONS), says)


class MarksTheLast(Words):
    """Inserts ids verbatim, but marks where the last turn begins: no prefix of the next prompt."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[int, ...]:
        *before, last = messages
        said = super().prompt(before)[:-1] if before else ()
        return (*said, *self.encode("x"), *super().prompt([last]))


def test_a_template_that_breaks_the_prefix_is_named_or_allowed() -> None:
    breaks(lambda: check_renderer(MarksTheLast(), CONVERSATIONS), "does not extend the tokens")
    check_renderer(MarksTheLast(), CONVERSATIONS, prefix=False)


def test_a_conversation_with_nothing_to_check_is_an_error() -> None:
    breaks(lambda: check_renderer(Words(), [[Message("user", "hello")]]), "nothing to check")


def test_conversations_are_left_as_they_were() -> None:
    before = copy.deepcopy(CONVERSATIONS)
    check_renderer(Words(), CONVERSATIONS)
    assert before == CONVERSATIONS
