"""The nouns of the framework: frozen records, no behaviour beyond reading themselves.

Token ids, logprobs and weights are plain tuples, so that a record can be written, hashed and
compared, and so that importing `rti` pulls in no tensor library. Suffixes name dimensions:
`_G` rollouts of a group, `_T` tokens of a turn or sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve, field, frozen

from rti.errors import NumericsError

Role = Literal["system", "user", "assistant", "tool"]
Ids = tuple[int, ...]
Floats = tuple[float, ...]


@frozen
class RequestKey:
    """Names one request to a policy. All its randomness comes from here, and from nowhere else.

    Two requests with equal keys and equal prompts draw equal tokens, whatever else is going on.
    """

    seed: int = 0
    step: int = 0
    task: str = ""
    rollout: int = 0
    turn: int = 0
    role: str = "agent"
    attempt: int = 0

    def child(self, **changes: Any) -> RequestKey:
        """The same key with some fields replaced, e.g. `key.child(role="verifier")`."""
        return evolve(self, **changes)

    def seed64(self) -> int:
        """A 64-bit seed: a hash of all fields, stable across processes and machines."""
        parts = (self.seed, self.step, self.task, self.rollout, self.turn, self.role, self.attempt)
        return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


@frozen
class ToolCall:
    """One call of a tool, as the policy asked for it. `arguments` is the parsed JSON object."""

    name: str
    arguments: Mapping[str, Any] = field(factory=dict)
    id: str = "0"


@frozen
class Message:
    """One message of a conversation.

    `token_ids` is set on assistant messages that were sampled (or tokenised once and frozen):
    a Renderer inserts those ids verbatim and never re-renders them from text.
    `error` marks a tool result that reports a failure.
    """

    role: Role
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    error: bool = False
    token_ids: Ids | None = field(default=None, repr=False)


@frozen
class Tool:
    """A tool of the environment: JSON schema of its arguments, and whose it is.

    A tool with `owner="user"` exists on the customer's side: the agent may ask for it to be run
    and must not call it.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(factory=dict)
    owner: Literal["agent", "user"] = "agent"


@frozen
class Task:
    """One problem of an environment. `family` groups tasks of one kind (mixing, reporting)."""

    id: str
    family: str = ""
    split: str = "train"
    data: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen
class Provenance:
    """Where tokens came from. Every token that is trained on carries one.

    `template` is the hash of the role prompt template; `verdicts` are the verifiers that accepted.
    A "demonstration" was sampled by a teacher that played the task by itself.
    """

    kind: Literal["policy", "correction", "demonstration"] = "policy"
    plugin: str = ""
    distribution: str = ""
    model: str = ""
    template: str = ""
    verdicts: tuple[str, ...] = ()


@frozen
class Turn:
    """One turn k of a rollout: the rollout prompt h_k, the response u_k and what followed.

    Attributes:
        index: k, from 0.
        prompt_ids: h_k, the history as the policy saw it, in tokens.
        completion_ids: u_k, T tokens, the end-of-turn token included when it was sampled.
        rollout_logprobs: T logprobs in nats of u_k under π_roll at h_k; 0 on a demonstration's
            turns, where π_roll did not sample and its probability is set to 1.
        message: u_k parsed.
        policy_version: of the policy that sampled (or, for a correction, scored) this turn.
        finish: "stop" when an end-of-turn token was sampled, "length" when it ran out of room.
        observations: what came back, or None when not yet known (`when = "before_step"`).
        weights: T token weights on a corrected turn, None (all 1) on every other.
        provenance: who wrote it.
    """

    index: int
    prompt_ids: Ids = field(repr=False)
    completion_ids: Ids = field(repr=False)
    rollout_logprobs: Floats = field(repr=False)
    message: Message
    policy_version: int = 0
    finish: Literal["stop", "length"] = "stop"
    observations: tuple[Message, ...] | None = None
    weights: Floats | None = field(default=None, repr=False)
    provenance: Provenance = field(factory=Provenance)

    @property
    def corrected(self) -> bool:
        """Whether this turn is a correction."""
        return self.provenance.kind == "correction"


@frozen
class History:
    """What led up to turn k: the messages before it, their tokens, the tools. Nothing privileged.

    `key` names the request; a plug-in that samples derives its own with `key.child(role=...)`.
    """

    messages: tuple[Message, ...]
    prompt_ids: Ids = field(repr=False)
    tools: tuple[Tool, ...] = ()
    key: RequestKey = field(factory=RequestKey)
    policy_version: int = 0


@frozen
class Evidence:
    """Reward-side rubrics: what counts as success, never the answer. Not for the Corrector."""

    text: str = ""
    facts: Mapping[str, Any] = field(factory=dict)


@frozen
class Privileged:
    """Facts no prompt whose output is trained on may hold. The Verifier compares against them."""

    facts: tuple[str, ...] = field(default=(), repr=False)


@frozen
class Diagnosis:
    """The Validator's word on one turn.

    `parsed` is False when its answer made no sense; `problem` then names the kind of nonsense.
    """

    harmful: bool
    kind: str = ""
    direction: str = ""
    raw: str = ""
    parsed: bool = True
    problem: str = ""


@frozen
class Correction:
    """A minimally changed turn ũ_k, as token ids.

    `corrector_prompt_ids` is the student-rendered prompt it was written under; None (rules, echo)
    means that there is no numerator and every weight is 1. `message` is what is executed and
    judged, `completion_ids` are what is trained on: they must say the same, as
    `renderer.turn(message)` and what `renderer.parse` makes of a completion do.
    """

    completion_ids: Ids = field(repr=False)
    message: Message
    corrector_prompt_ids: Ids | None = field(default=None, repr=False)
    provenance: Provenance = field(factory=lambda: Provenance(kind="correction"))


@frozen
class Verdict:
    """A Verifier's word. The reason is for people and counters; it enters no prompt.

    `parsed` is False when its answer made no sense; `problem` then names the kind of nonsense.
    `by` is filled in by the run: the name that the config gives the verifier.
    """

    accepted: bool
    reason: str = ""
    parsed: bool = True
    by: str = ""
    problem: str = ""


@frozen
class Decision:
    """A Gate's word, with the value it looked at and the threshold it held it against.

    `by` is filled in by the run: the name that the config gives the gate.
    """

    admitted: bool
    value: float
    threshold: float
    reason: str = ""
    by: str = ""


Stage = Literal[
    "unflagged",
    "vetoed",
    "uncorrected",
    "rejected",
    "gated",
    "unforkable",
    "faulted",
    "failed",
    "succeeded",
]


@frozen
class Intervention:
    """Everything that happened when one turn of one draft was looked at and repaired.

    `stage` says how far it came: "unflagged" (no harmful turn), "vetoed" (the diagnosis would
    have told too much), "uncorrected" (no correction), "rejected" (by a Verifier), "gated"
    (stopped by a gate), "unforkable", "faulted" (infrastructure), "failed" (resumed, but without
    success), "succeeded". `trained` is set when the repaired rollout entered the group.
    `resumed` is the rollout that went on from the correction, successful or not.
    """

    task: Task
    rollout: int
    attempt: int
    stage: Stage = "unflagged"
    reason: str = ""
    history: History | None = field(default=None, repr=False)
    draft: Turn | None = None
    diagnosis: Diagnosis | None = None
    correction: Correction | None = None
    verdicts: tuple[Verdict, ...] = ()
    decisions: tuple[Decision, ...] = ()
    rollout_logprobs: Floats | None = field(default=None, repr=False)
    corrector_logprobs: Floats | None = field(default=None, repr=False)
    weights: Floats | None = field(default=None, repr=False)
    outcome: float | None = None
    trained: bool = False
    resumed: Rollout | None = field(default=None, repr=False)


@frozen
class Rollout:
    """One episode: its turns, and the outcome the environment gave it.

    A rollout with a `fault` met an infrastructure error: it has no outcome and counts nowhere
    but in the fault counter. `messages` is the whole conversation, opening included.
    """

    task: Task
    index: int
    turns: tuple[Turn, ...] = field(default=(), repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)
    outcome: float | None = None
    success: bool = False
    truncated: bool = False
    fault: str | None = None
    draft_outcome: float | None = None

    @property
    def corrected(self) -> bool:
        """Whether any of its turns is a correction."""
        return any(turn.corrected for turn in self.turns)

    @property
    def demonstration(self) -> bool:
        """Whether a teacher played it."""
        return any(turn.provenance.kind == "demonstration" for turn in self.turns)


@frozen
class Group:
    """The rollouts of one task. Those with a fault are left out of `rollouts` and counted."""

    task: Task
    rollouts: tuple[Rollout, ...] = field(repr=False)
    faults: int = 0

    @property
    def outcomes_G(self) -> Floats:
        """Outcomes in [0, 1], one a rollout.

        Raises:
            NumericsError: for a rollout without one; those with a fault belong into no group.
        """
        outcomes = tuple(r.outcome for r in self.rollouts)
        if None in outcomes:
            raise NumericsError(
                f"task {self.task.id!r}: rollout {outcomes.index(None)} has no outcome"
            )
        return tuple(float(o) for o in outcomes if o is not None)

    @property
    def all_failed(self) -> bool:
        """All failed on the raw outcome. False for a group that infrastructure emptied."""
        return bool(self.rollouts) and not any(r.success for r in self.rollouts)


@frozen
class Span:
    """Tokens [start, stop) of a sample that one author wrote."""

    start: int
    stop: int
    provenance: Provenance


@frozen
class Sample:
    """One training sequence: a rollout, or a piece of one where the prompt prefix broke.

    All per-token tuples have the length of `token_ids`; on positions that `loss_mask` leaves out
    they hold 0 (logprobs, advantages) and 1 (weights).
    """

    group: int
    rollout: int
    token_ids: Ids = field(repr=False)
    loss_mask: tuple[bool, ...] = field(repr=False)
    rollout_logprobs: Floats = field(repr=False)
    advantages: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    spans: tuple[Span, ...] = field(default=(), repr=False)
    shared_prefix: tuple[int, int] | None = None
    """(index of an earlier sample, number of leading tokens shared with it)."""


@frozen
class Batch:
    """What an engine trains on; an engine adapter only carries it.

    `rollout` numbers in the samples count rollouts over the whole batch: advantages and loss
    denominators count rollouts, not samples. `aux` holds what an objective needs beyond this: by
    name, for each sample one float a token (0 on tokens that are not trained). `notes` says in
    words what a reader of the step must know: faults, a budget that is spent.
    """

    samples: tuple[Sample, ...] = field(repr=False)
    policy_version: int = 0
    groups: tuple[Group, ...] = field(default=(), repr=False)
    interventions: tuple[Intervention, ...] = field(default=(), repr=False)
    metrics: Mapping[str, float] = field(factory=dict)
    aux: Mapping[str, Any] = field(factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)


@frozen
class SamplingParams:
    """How to sample. Training rollouts must keep temperature 1 and top_p 1.

    `schema` is a JSON schema, as JSON text, for the judges' answers: a policy that can constrain
    decoding follows it, any other ignores it. Such tokens are never trained on.
    """

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    schema: str = ""


@frozen
class Completion:
    """What a policy sampled: ids (end-of-turn included), their logprobs, and who sampled."""

    token_ids: Ids
    logprobs: Floats
    finish: Literal["stop", "length"]
    policy_version: int


@frozen
class Spoken:
    """What a policy that speaks in messages says.

    `refused` holds an error for each of its calls where one of them cannot be read: the environment
    then sees nothing of the turn, and the policy goes on from the errors.
    """

    message: Message
    finish: Literal["stop", "length"] = "stop"
    refused: tuple[Message, ...] = ()


@frozen
class Step:
    """What an environment answers to a turn: observations, then whether it is over."""

    observations: tuple[Message, ...] = ()
    done: bool = False
    truncated: bool = False
