"""OpenAI completion requests, answered by one pocket model: what it can do, what it refuses."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from rti_pocket.generate import Generated, Generator

MAX_LOGPROBS = 5


class Refused(Exception):
    """A request that is answered with an error, in OpenAI's shape."""

    def __init__(self, message: str, status: int = 400, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {
            "error": {
                "message": message,
                "type": kind,
                "param": param or None,
                "code": code or None,
            }
        }


@define
class Completions:
    """Answers completion requests with one model, one after the other."""

    generator: Generator
    name: str
    seed: int = 0
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _asked: int = field(init=False, default=0)

    def models(self) -> dict[str, Any]:
        """What /v1/models lists."""
        row = {"id": self.name, "object": "model", "created": 0, "owned_by": "rti"}
        return {"object": "list", "data": [{**row, "max_model_len": self.generator.limit}]}

    def complete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One completion of `asked["prompt"]`.

        Raises:
            Refused: for anything that it cannot do as asked.
        """
        if (model := asked.get("model", self.name)) != self.name:
            raise Refused(
                f"The model {model!r} does not exist: {self.name!r} is served.", 404, "model",
                "model_not_found",
            )  # fmt: skip
        for key, only in (("n", 1), ("stream", False), ("top_p", 1), ("response_format", None)):
            if asked.get(key, only) not in (only, None):
                raise Refused(f"{key} = {asked[key]!r} is not supported: {only} only.", 400, key)
        text = asked.get("prompt")
        if not isinstance(text, str) or not text.strip():
            raise Refused("prompt must be a text that is not empty.", 400, "prompt")
        most = _number(asked, "max_tokens", 16, 1, 4096, int)
        temperature = _number(asked, "temperature", 1.0, 0.0, 100.0, float)
        top = _number(asked, "logprobs", 0, 0, MAX_LOGPROBS, int)
        prompt, unknown = self.generator.encode(text)
        if unknown:
            raise Refused(
                f"{len(unknown)} words of the prompt are not in the pocket vocabulary, "
                f"{unknown[0]!r} among them.", 400, "prompt",
            )  # fmt: skip
        if len(prompt) + most > self.generator.limit:
            raise Refused(
                f"The prompt has {len(prompt)} tokens and max_tokens is {most}: the model's "
                f"context length is {self.generator.limit}.", 400, "prompt",
                "context_length_exceeded",
            )  # fmt: skip
        stops = self._stops(asked.get("stop"))
        seed = asked.get("seed")
        if seed is not None and type(seed) is not int:
            raise Refused(f"seed = {seed!r} must be a whole number.", 400, "seed")
        with self._lock:  # one model, one pass at a time: answers do not depend on who else asks
            self._asked += 1
            drawn = self.generator.sample(prompt, most, temperature, self._draw(seed), stops, top)
            before = self.generator.score(prompt, top) if asked.get("echo") else None
        return self._answer(asked, prompt, before, drawn)

    def _stops(self, words: Any) -> tuple[int, ...]:
        asked = [words] if isinstance(words, str) else words or []
        if not isinstance(asked, list) or not all(isinstance(w, str) for w in asked):
            raise Refused("stop must be a word or a list of words.", 400, "stop")
        ids, unknown = self.generator.encode(" ".join(asked))
        if unknown:
            raise Refused(f"stop = {unknown[0]!r} is not in the vocabulary.", 400, "stop")
        return (self.generator.tokenizer.eos_token_id, *ids)

    def _draw(self, seed: int | None) -> int:
        parts = (self.seed, self._asked) if seed is None else (seed,)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
        return int.from_bytes(digest, "big")

    def _answer(
        self,
        asked: Mapping[str, Any],
        prompt: tuple[int, ...],
        before: Generated | None,
        drawn: Generated,
    ) -> dict[str, Any]:
        # As elsewhere, the word that ends the turn is no part of the text.
        shown = drawn.ids[:-1] if drawn.finish == "stop" else drawn.ids
        text = self.generator.decode((*prompt, *shown) if before else shown)
        choice: dict[str, Any] = {
            "index": 0,
            "text": text,
            "finish_reason": drawn.finish,
            "logprobs": None,
        }
        if asked.get("logprobs") is not None:
            choice["logprobs"] = self._logprobs(prompt if before else (), before, drawn)
        used = {"prompt_tokens": len(prompt), "completion_tokens": len(drawn.ids)}
        return {
            "id": f"cmpl-{self._asked}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.name,
            "choices": [choice],
            "usage": {**used, "total_tokens": sum(used.values())},
        }

    def _logprobs(
        self, prompt: tuple[int, ...], before: Generated | None, drawn: Generated
    ) -> dict[str, Any]:
        def rows(made: Generated | None) -> Iterator[tuple[int, float, dict[str, float]]]:
            for i, logprob, top in (
                zip(made.ids, made.logprobs_T, made.top, strict=True) if made else ()
            ):
                yield i, logprob, {self.generator.decode([j]): value for j, value in top}

        listed = [*rows(before), *rows(drawn)]
        first: list[Any] = [None] if prompt else []  # nothing stands before the first word
        return {
            "tokens": [
                self.generator.decode([i]) for i in (*prompt[:1], *(i for i, _, _ in listed))
            ],
            "token_logprobs": [*first, *(logprob for _, logprob, _ in listed)],
            "top_logprobs": [*first, *(top for _, _, top in listed)],
        }


def _number(
    asked: Mapping[str, Any], key: str, default: Any, low: float, high: float, kind: type
) -> Any:
    value = asked.get(key)
    if value is None:
        return default
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or not low <= value <= high or kind(value) != value:
        raise Refused(f"{key} = {value!r} must be a number from {low:g} to {high:g}.", 400, key)
    return kind(value)
