"""The kinds of plug-in. Each is a small Protocol; its docstring holds a whole working example.

A plug-in is an attrs class whose fields are its options, handed to `rti` by a hook that returns
`{name: class}` (see `rti.hookspecs`). An object that defines `bind(context)` is called with the
run's `Context` once everything is built; that is how it reaches the live policy or the renderer.
Everything a plug-in author needs is importable from `rti`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import define

from rti.types import (
    Batch,
    Completion,
    Correction,
    Decision,
    Diagnosis,
    Evidence,
    Floats,
    Group,
    History,
    Ids,
    Intervention,
    Message,
    Privileged,
    RequestKey,
    SamplingParams,
    Step,
    Task,
    Tool,
    Turn,
    Verdict,
)

if TYPE_CHECKING:
    from rti.config import ModelConfig, TeacherConfig


@define
class Context:
    """What a run lends to its plug-ins: policy, renderer, environment, seed.

    `teacher` is the `[teacher]` section: the endpoint that roles played by a teacher share, and the
    folder of a teacher that objectives learn from.
    """

    seed: int
    model: ModelConfig
    policy: Policy
    renderer: Renderer
    environment: Environment
    objective: Objective | None = None
    out: Path | None = None
    teacher: TeacherConfig | None = None


@runtime_checkable
class Validator(Protocol):
    """Says whether a turn harmfully derails its rollout.

    It is reward-oriented: a suboptimal but recoverable choice is not harmful.

    Optional, for this role as for Corrector and Verifier: a property `spent`, why it can do no
    more ("" while it can; a run then stops intervening, and says so); `usage`, counters that only
    grow and enter the metrics; `notes`, what it has to say to a reader so far; `async check()`,
    findings for `rti doctor` as (level, text); `async close()`, the run is over. A Validator may
    say with `needs_observations` whether it judges by what came back: `rti doctor` then warns where
    `when = "before_step"` leaves it nothing to judge.

        @frozen
        class Errors:
            "Flags a turn that a tool answered with an error."

            async def validate(self, turn, history, evidence):
                errors = [m for m in turn.observations or () if m.error]
                return Diagnosis(bool(errors), "tool-error", "Do not repeat this call.")
    """

    async def validate(self, turn: Turn, history: History, evidence: Evidence) -> Diagnosis:
        """Judge `turn`; `turn.observations` is None when it has not been executed yet."""
        ...


@runtime_checkable
class Corrector(Protocol):
    """Writes a minimally changed turn, or None when it has nothing to offer.

    @define
    class Polite:
        "Asks the user to do what the draft did itself."

        renderer: Renderer = field(init=False)

        def bind(self, context):
            self.renderer = context.renderer

        async def correct(self, draft, diagnosis, history, tools):
            message = Message("assistant", f"Could you please: {diagnosis.direction}")
            return Correction(self.renderer.turn(message), message)
    """

    async def correct(
        self, draft: Turn, diagnosis: Diagnosis, history: History, tools: Sequence[Tool]
    ) -> Correction | None:
        """Return a correction of `draft`. It never sees evidence or privileged facts.

        None, or NoCorrection with the kind of reason, when there is none.
        """
        ...


@runtime_checkable
class Verifier(Protocol):
    """Accepts a correction, or refuses it. All configured verifiers must accept.

    One that stands under `[veto]` may also define `async vet(diagnosis, draft, history, evidence,
    privileged) -> Verdict`: it then judges every diagnosis before the Corrector sees it.

    @frozen
    class Short:
        "Refuses corrections of more than 200 tokens."

        async def verify(self, correction, draft, history, evidence, privileged):
            return Verdict(len(correction.completion_ids) <= 200, "too long")
    """

    async def verify(
        self,
        correction: Correction,
        draft: Turn,
        history: History,
        evidence: Evidence,
        privileged: Privileged,
    ) -> Verdict:
        """Judge `correction`. The verdict's reason enters no prompt."""
        ...


@runtime_checkable
class Gate(Protocol):
    """Lets an intervention through by its numbers. Several gates are ANDed.

    @frozen
    class AtMost:
        "Refuses corrections of more than `tokens` tokens."

        tokens: int = option(64, "Most tokens a correction may have.", at_least(1))

        def admit(self, intervention):
            n = len(intervention.rollout_logprobs)
            return Decision(n <= self.tokens, n, self.tokens, "length")
    """

    def admit(self, intervention: Intervention) -> Decision:
        """Decide; `intervention.rollout_logprobs` are those of ũ_k at h_k under π_roll."""
        ...


@runtime_checkable
class Weighter(Protocol):
    """Gives every token of a corrected turn its weight.

    @frozen
    class Flat:
        "Weights all tokens alike."

        def weigh(self, intervention):
            return (1.0,) * len(intervention.rollout_logprobs)
    """

    def weigh(self, intervention: Intervention) -> Floats:
        """Return T finite, positive weights. `corrector_logprobs` is None without a prompt."""
        ...


@runtime_checkable
class Trigger(Protocol):
    """Says whether a group is intervened on. Judged on raw outcomes, never on shaped rewards.

    Optional: `resample(group) -> bool` drops a group as it was sampled, before anything is
    repaired, and has one on a further task sampled in its place; it is asked in up to `rounds`
    rounds a step, `rounds` being an int beside it.

        @frozen
        class AllFailed:
            def fires(self, group):
                return group.all_failed
    """

    def fires(self, group: Group) -> bool:
        """Whether to intervene on `group`."""
        ...


@runtime_checkable
class Session(Protocol):
    """One live episode of an environment."""

    @property
    def opening(self) -> Sequence[Message]:
        """The messages before the first turn: system, user."""
        ...

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools the conversation is about; `owner` says whose each is."""
        ...

    async def step(self, turn: Turn) -> Step:
        """Execute a turn. Raises InfrastructureError for faults that are not the policy's."""
        ...

    async def fork(self, k: int) -> Session:
        """An independent session in the state before turn `k`, or raise CannotFork."""
        ...

    def state_digest(self) -> str:
        """A hash of the whole state, equal exactly for equal states."""
        ...

    def evidence(self, k: int) -> Evidence:
        """What the Validator may know about success when it looks at turn `k`."""
        ...

    def privileged(self) -> Privileged:
        """Facts that no correction may hold unless history has them."""
        ...

    def score(self) -> float:
        """The outcome in [0, 1]. From the environment alone."""
        ...

    async def close(self) -> None:
        """Release what the session holds. Safe to call twice."""
        ...


@runtime_checkable
class Environment(Protocol):
    """A set of tasks and how to live through them.

    Success is an outcome of at least `threshold`. `leaks_by_design` says that evidence may hold
    privileged strings on purpose, so that leaks can be studied; `rti doctor` reports it.
    Optional: `benchmark`, what a table of results calls it (default: its name in the config);
    `serving`, a class attribute: names of options that decide how its sessions are served and not
    what comes of them (timeouts, say), which an evaluation may change while it goes on;
    `rehearsal() -> Environment | None`, one like it that asks no server, for `rti doctor` and `rti
    costs` to play in its place (None: it asks none); `async check()`, findings for `rti doctor` as
    (level, text) about what its sessions ask; `usage`, counters that only grow, which become
    metrics of a step and stand in the record of an evaluation.
    See docs for a complete one; `rti.testing.check_environment` checks yours.
    """

    @property
    def threshold(self) -> float:
        """Lowest outcome that is a success."""
        ...

    @property
    def leaks_by_design(self) -> bool:
        """Whether evidence may hold privileged strings on purpose."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, always in the same order."""
        ...

    async def start(self, task: Task) -> Session:
        """A fresh session of `task`."""
        ...

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        """A reference agent for `rti doctor`: "gold" or "noop"; None when there is none.

        It returns the agent's next message for a session. It may use the answer, so nothing it
        says is ever trained on.
        """
        ...


@runtime_checkable
class Renderer(Protocol):
    """Messages ↔ token ids for one model family. Sampled ids stay as they are.

    Optional: `thought(ids) -> int`, the number of leading ids of a completion that form its
    thinking block (0: none; all of them when it never closes), and `empty_thought`, the ids that a
    turn begins with which thinks nothing (() where it may just speak).
    """

    @property
    def stop_ids(self) -> Ids:
        """Tokens that end a turn."""
        ...

    def encode(self, text: str) -> Ids:
        """Token ids of plain text, without special tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        ...

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Ids:
        """The prompt for the next turn. Assistant `token_ids` are inserted verbatim."""
        ...

    def turn(self, message: Message) -> Ids:
        """An assistant message as a completion, end-of-turn token included."""
        ...

    def parse(self, ids: Sequence[int]) -> Message:
        """A completion as a message; `token_ids` is set. Never raises on odd ids."""
        ...

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Whether `after` starts with all of `before`."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Samples and scores. Token ids in and out; batching is its own affair.

    Optional: `async sleep()`, the update begins: free the accelerator until the next `load`;
    `async close()`, the run is over; `describe() -> str`, what it is in words, for the record.

    One that knows messages and no tokens (a chat model behind an API) defines `async
    reply(messages, tools, params, key) -> Spoken | None`, None where the conversation has become
    too long for it. It can be evaluated and nothing else: `sample`, `score` and `load` are never
    called. Optional for it: `async ready()`, called before all else; `identity`, a mapping of what
    makes it another policy beside its name; `spent` and `notes`, as for the roles.
    """

    @property
    def version(self) -> int:
        """Version of the weights it holds now: the number of updates behind them."""
        ...

    @property
    def usage(self) -> Mapping[str, float]:
        """Counters that only grow; `sampled_tokens` and `scored_tokens` at least."""
        ...

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        """One completion a prompt. Equal keys and prompts draw equal tokens."""
        ...

    async def score(
        self, prompts: Sequence[Ids], completions: Sequence[Ids], version: int
    ) -> list[Floats]:
        """Logprobs of each completion's tokens after its prompt, at temperature 1.

        Raises StaleVersionError when `version` is not the version it holds.
        """
        ...

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights; drop every cache of the old ones."""
        ...

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        """Run episodes together and return their results in order.

        The policy knows how many are alive, and so when every one of them waits for it.
        """
        ...


@runtime_checkable
class Objective(Protocol):
    """What is maximised: group advantages, and a pure loss a token.

    What it wants to know beyond advantages and logprobs it names in `needs`. Each name is one
    value a token and comes as a keyword of `token_loss`:

    - "teacher": the logprob of the token under the teacher of `[teacher] weights`, at the rollout
      prompt; the collector puts it into `Batch.aux`;
    - "demonstrations": 1 on the tokens of a rollout that the teacher played, else 0. It also asks
      for such rollouts: one joins each group in which the teacher succeeded, in place of one of the
      policy's; the collector puts it into `Batch.aux`;
    - "old": the logprob under the trainer's weights before the batch's first update; the trainer
      computes it.

    Optional: `every_group`, whether groups whose advantages are all 0 are trained on too.

        @frozen
        class Reinforce:
            "No baseline, no clip."

            needs = ()
            aggregate = "token"
            constant_length = 0

            def advantages(self, group):
                return group.outcomes_G

            def token_loss(self, logprobs, rollout_logprobs, advantages):
                return -(logprobs - rollout_logprobs).exp() * advantages
    """

    @property
    def needs(self) -> Sequence[str]:
        """Names of what `token_loss` takes beside its three tensors; () for nothing."""
        ...

    @property
    def aggregate(self) -> str:
        """One of "token", "sequence", "constant": see `rti.ops.token_scales`."""
        ...

    @property
    def constant_length(self) -> int:
        """Tokens that a rollout is divided by under "constant"; 0 otherwise."""
        ...

    def advantages(self, group: Group) -> Floats:
        """Â, one a rollout, from raw outcomes."""
        ...

    def token_loss(
        self, logprobs: Any, rollout_logprobs: Any, advantages: Any, **needs: Any
    ) -> Any:
        """Loss of each token: tensors of one shape in, one tensor of that shape out.

        `needs` holds a tensor of that shape for each name in `self.needs`. The gradient flows
        through `logprobs` alone.
        """
        ...


@runtime_checkable
class Trainer(Protocol):
    """Takes an engine-neutral batch and updates weights. Knows nothing of plug-ins.

    Optional: `score(prompts, completions) -> list[Floats]`, logprobs of the completions' tokens
    under its weights, for `[intervention] score_by = "trainer"`.
    """

    def supports(self, objective: Objective) -> bool:
        """Whether it can optimise this objective: whether it knows all that it `needs`."""
        ...

    def step(self, batch: Batch) -> Mapping[str, float]:
        """One update on `batch` (at least one sample). Returns metrics, `loss` among them."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """The weights now, by parameter name."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights and optimiser state into an existing folder. No pickle."""
        ...

    def restore(self, folder: Path) -> None:
        """Read back what `save` wrote, bit for bit."""
        ...


@runtime_checkable
class Reporter(Protocol):
    """Receives the run's typed events (`rti.events`), in order."""

    def report(self, event: Any) -> None:
        """Take one event. Must not raise for an event it does not know."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


Command = Callable[..., Any]
"""A sub-command: fills an argparse sub-parser and sets `run`, a function of (args, registry)."""
