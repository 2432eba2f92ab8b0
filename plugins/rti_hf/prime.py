"""Chat formats out of the PyPI library `renderers` (Prime Intellect), for models we have none of.

The library writes and reads the formats; this class keeps our rules around it: sampled ids stay as
they are, text of tools and users forges no token, and what the library cannot do is said at bind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from attrs import define, evolve, field

from rti import (
    Context,
    Ids,
    Message,
    PluginError,
    RunError,
    Tool,
    ToolCall,
    anything,
    model_folder,
    not_empty,
    option,
)
from rti_hf.rendering.shapes import message_dict, sound_call, tool_dict

_USER = Message("user", "x")
_THOUGHT = "thinkingplaceholder"


@define
class PrimeRenderer:
    """A chat format of the library `renderers`, by its name there: "glm-4.5", "kimi-k2", …

    A prompt is the library's rendering up to the first sampled turn; from there on the library
    *bridges*: it appends what came after to the ids as they were sampled, earlier thinking
    included (`thinking_retention = "all"`, unless `options` says otherwise). Where it declines,
    as after thinking that a stop token cut short, the history is rendered anew from its text: the
    prompt does not extend the last one, and the rollout is split there.

    Reasoning is lost in formats that have no place for it (DeepSeek-V3, Kimi-K2, Llama 3).

    In text of users, tools and other agents the library would read special tokens; here each gets
    a backslash after its first letter, so that it stays text.
    """

    extra: ClassVar[str] = "renderers"

    family: str = option("", "Name of the format in the library (glm-4.5, kimi-k2, …).", not_empty)
    tokenizer: str = option("", "Tokenizer folder; empty: that of [model] path.", anything)
    options: dict[str, Any] = option(
        {}, "Fields of the format's config in the library, e.g. { enable_thinking = false }.",
        anything,
    )  # fmt: skip
    _tokenizer: Any = field(init=False, default=None, repr=False)
    _library: Any = field(init=False, default=None, repr=False)
    _token: re.Pattern[str] = field(init=False, default=re.compile(r"(?!)"), repr=False)
    _specs: dict[str, Any] = field(init=False, factory=dict, repr=False)

    def bind(self, context: Context) -> None:
        """Load the tokenizer, from local files alone, and try the format on it.

        Raises:
            PluginError: the library has no such format, or it does not work with this tokenizer
                or these options.
        """
        from renderers import config_from_name, create_renderer
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(
            model_folder(context.model.path) if not self.tokenizer else self.tokenizer,
            local_files_only=True,
        )
        added = [token for token in self._tokenizer.get_added_vocab() if len(token.strip()) > 1]
        added.sort(key=len, reverse=True)
        self._token = re.compile("|".join(map(re.escape, added)) or r"(?!)")
        if self.family in ("auto", "default", "custom"):
            raise self._wrong(
                "that is no format of a model: the ids that were sampled would be lost"
            )
        try:
            kind = type(config_from_name(self.family))
            config = kind(**{"thinking_retention": "all", **self.options})
            self._library = create_renderer(self._tokenizer, config)
            self._try()
        except RunError as error:
            raise self._wrong(str(error)) from error
        except Exception as error:  # the library raises assertions, pydantic's errors, its own
            raise self._wrong(f"{type(error).__name__}: {error}") from error

    def _try(self) -> None:
        """A short conversation that must survive the format."""
        first = self.prompt([_USER])
        turn = self.turn(Message("assistant", "fine"))
        said = self.parse(turn)
        if said.content.strip() != "fine":
            raise RunError(f"a turn that says 'fine' is read as {said.content!r}")
        after = self.prompt([_USER, said, Message("user", "y")])
        if "thinking_retention" not in self.options and not self.extends((*first, *turn), after):
            raise RunError("a prompt does not extend the sampled turn before it")

    def _wrong(self, what: str) -> PluginError:
        return PluginError(
            f"[renderer] prime: family = {self.family!r} does not work with this tokenizer: "
            f"{' '.join(what.split())}. Set renderer.family and renderer.options as the library's "
            "documentation says"
        )

    @property
    def stop_ids(self) -> Ids:
        """Tokens that end a turn."""
        return tuple(self._bound().get_stop_token_ids())

    def encode(self, text: str) -> Ids:
        """Token ids of plain text; what looks like an added token in it is kept from being one."""
        self._bound()
        return tuple(self._tokenizer.encode(self._plain(text), add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens shown."""
        self._bound()
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Ids:
        """The prompt for the next turn; tools of the agent are listed as the format does it."""
        self._bound()
        specs = [tool_dict(tool) for tool in tools if tool.owner == "agent"] or None
        self._specs.update((spec["function"]["name"], spec) for spec in specs or ())
        ids: list[int] | None = None
        before = 0
        for index, message in enumerate(messages):
            if message.role != "assistant" or message.token_ids is None:
                continue
            ids = self._up_to(messages, before, index, ids, specs)
            ids = [*ids, *message.token_ids]
            before = index + 1
            if before < len(messages) and messages[before].role == "assistant":
                ids = None  # two turns in a row: no bridge leads from one to the other
        return tuple(self._up_to(messages, before, len(messages), ids, specs))

    def _up_to(
        self, messages: Sequence[Message], before: int, stop: int, ids: list[int] | None, specs: Any
    ) -> list[int]:
        """The prompt for turn `stop`; `ids` are those up to the end of turn `before - 1`."""
        library = self._bound()
        if ids is not None and before:
            completion = list(messages[before - 1].token_ids or ())
            prompt = ids[: len(ids) - len(completion)]
            new = [self._dict(messages, i) for i in range(before, stop)]
            bridged = library.bridge_to_next_turn(prompt, completion, new, tools=specs)
            if bridged is not None:
                return list(bridged.token_ids)
        said = [self._dict(messages, i) for i in range(stop)]
        return list(library.render_ids(said, tools=specs, add_generation_prompt=True))

    def turn(self, message: Message) -> Ids:
        """An assistant message as a completion, with an end-of-turn token.

        Raises:
            RunError: the format cannot write this message behind its own prompt.
        """
        stops = self.stop_ids
        if message.token_ids is not None:
            ids = message.token_ids
            return ids if ids and ids[-1] in stops else (*ids, self._end(message))
        completion = self._completion(message)
        if completion is None and not message.reasoning:
            # The prompt opens a thinking block, and the format writes a turn without thinking in
            # another way: write a thought, and take it out again.
            completion = self._completion(evolve(message, reasoning=_THOUGHT))
        if completion is None:
            raise RunError(
                f"{self.family} cannot write this turn behind its own prompt (if that opens a "
                "thinking block, an option of the format may turn it off)"
            )
        for position, token in enumerate(completion):
            if token in stops:
                return completion[: position + 1]
        return (*completion, self._end(message))

    def _completion(self, message: Message) -> Ids | None:
        """What the format writes for a turn behind the open prompt; None if it does not start so.

        A thought that is `_THOUGHT` is left out of it.
        """
        opened = self.prompt([_USER])
        conversation = [_USER, message]
        try:
            whole = tuple(self._bound().render_ids([self._dict(conversation, i) for i in (0, 1)]))
        except ValueError as error:
            raise RunError(f"{self.family} cannot write this turn: {error}") from error
        placeholder = message.reasoning == _THOUGHT
        if whole[: len(opened)] == opened and not placeholder:
            return whole[len(opened) :]
        # A token may span the end of the prompt, or the thought's: cut the text there instead.
        head, text = self.decode(opened), self.decode(whole)
        if not text.startswith(head):
            return None
        rest = text[len(head) :]
        if placeholder:
            rest = rest.replace(_THOUGHT, "", 1)
        return tuple(self._tokenizer.encode(rest, add_special_tokens=False))

    def _end(self, message: Message) -> int:
        """The token that ends a turn in a rendered conversation, after a turn like this one."""
        plain = Message("assistant", "x", tool_calls=message.tool_calls)
        next_up = Message("user", "x")
        if message.tool_calls:
            next_up = Message("tool", "x", tool_call_id=message.tool_calls[0].id)
        conversation = [_USER, plain, next_up]
        rendered = self._bound().render([self._dict(conversation, i) for i in range(3)])
        after = False
        for token, owner in zip(rendered.token_ids, rendered.message_indices, strict=True):
            after = after or owner == 1
            if after and token in self.stop_ids:
                return int(token)
        return self.stop_ids[0]

    def parse(self, ids: Sequence[int]) -> Message:
        """A completion as a message. Calls that the library finds malformed stay in the content.

        Calls get the ids "0", "1", … in the order in which they stand.
        """
        library = self._bound()
        size = len(self._tokenizer)
        valid = [i for i in ids if 0 <= i < size]
        opened = list(self.prompt([_USER]))
        specs = list(self._specs.values()) or None
        try:
            found = library.parse_response(valid, tools=specs, prompt_ids=opened)
        except Exception:  # the library's parsers may stumble over ids that no model would write
            return Message("assistant", self.decode(valid), token_ids=tuple(ids))
        content = found.content
        calls: list[ToolCall] = []
        for attempt in found.tool_calls:
            call = sound_call(attempt, str(len(calls)))
            if call is None:
                content = f"{content}\n{attempt.raw}" if content else attempt.raw
            else:
                calls.append(call)
        reasoning = found.reasoning_content or ""
        return Message("assistant", content, reasoning, tuple(calls), token_ids=tuple(ids))

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Whether `after` starts with all of `before`."""
        return tuple(after[: len(before)]) == tuple(before)

    def _plain(self, text: str) -> str:
        return self._token.sub(lambda found: f"{found[0][0]}\\{found[0][1:]}", text)

    def _dict(self, messages: Sequence[Message], index: int) -> dict[str, Any]:
        return message_dict(messages, index, self._plain)

    def _bound(self) -> Any:
        if self._library is None:
            raise RunError("[renderer] prime has no tokenizer yet: call bind(context) first")
        return self._library
