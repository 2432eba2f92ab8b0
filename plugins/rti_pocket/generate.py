"""One pocket model, sampled one request at a time: what `rti pocket serve` answers with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, frozen

from rti import Floats, Ids, model_folder


@frozen
class Generated:
    """Sampled ids (end of turn included), their logprobs, the likeliest tokens, and the end.

    Logprobs are in nats and of the model at temperature 1. `top` holds, a token, (id, logprob) of
    the likeliest ones.
    """

    ids: Ids
    logprobs_T: Floats
    top: tuple[tuple[tuple[int, float], ...], ...]
    finish: str


@define
class Generator:
    """A Hugging Face folder of the pocket worlds: words in, words out."""

    model: Any
    tokenizer: Any
    limit: int

    @classmethod
    def load(cls, path: str) -> Generator:
        """Load model and tokenizer, from local files alone.

        Raises:
            ConfigError: when there is no model folder at that place.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        folder = model_folder(path)
        disable_progress_bar()
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True
        ).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return cls(model, tokenizer, int(model.config.max_position_embeddings))

    def encode(self, text: str) -> tuple[Ids, list[str]]:
        """Ids of the words, and those words that the vocabulary does not have."""
        ids = self.tokenizer.get_vocab()
        words = text.split()
        unknown = [word for word in words if word not in ids]
        return tuple(ids[word] for word in words if word in ids), unknown

    def decode(self, ids: Sequence[int]) -> str:
        """Words, special ones included."""
        return " ".join(self.tokenizer.convert_ids_to_tokens(list(ids)))

    def score(self, ids: Ids, top: int) -> Generated:
        """Logprobs of all but the first of these tokens: what `echo` shows."""
        import torch

        with torch.inference_mode():
            logits_T_V = self.model(torch.tensor([ids])).logits[0, :-1]
        logprobs_T_V = torch.log_softmax(logits_T_V.double(), dim=-1)
        chosen_T = logprobs_T_V.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        return Generated(
            ids[1:],
            tuple(chosen_T.tolist()),
            tuple(_likeliest(row_V, top) for row_V in logprobs_T_V),
            "stop",
        )

    def sample(
        self, prompt: Ids, max_tokens: int, temperature: float, seed: int, stop: Ids, top: int
    ) -> Generated:
        """Sample until an id of `stop`, or `max_tokens`. Equal seeds draw equal tokens."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        ids, logprobs_T, likeliest = list[int](), list[float](), []
        new, cache = torch.tensor([prompt]), None
        with torch.inference_mode():
            while len(ids) < max_tokens:
                out = self.model(new, past_key_values=cache, use_cache=True)
                cache, logits_V = out.past_key_values, out.logits[0, -1].double()
                logprobs_V = torch.log_softmax(logits_V, dim=-1)
                if temperature == 0:
                    chosen = int(logits_V.argmax())
                else:
                    odds_V = torch.softmax(logits_V / temperature, dim=-1)
                    chosen = int(torch.multinomial(odds_V, 1, generator=draw))
                ids.append(chosen)
                logprobs_T.append(float(logprobs_V[chosen]))
                likeliest.append(_likeliest(logprobs_V, top))
                if chosen in stop:
                    break
                new = torch.tensor([[chosen]])
        finish = "stop" if ids and ids[-1] in stop else "length"
        return Generated(tuple(ids), tuple(logprobs_T), tuple(likeliest), finish)


def _likeliest(logprobs_V: Any, count: int) -> tuple[tuple[int, float], ...]:
    if not count:
        return ()
    values, places = logprobs_V.topk(count)
    return tuple(zip(places.tolist(), values.tolist(), strict=True))
