"""Warm start: an ordinary small Llama learns the pocket worlds' habits and roles by imitation.

The recipe is in `lessons`; here it becomes weights. Torch and transformers are imported inside.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rti import ConfigError
from rti_pocket import shortcut_lessons
from rti_pocket.lessons import Lesson, draw_lessons
from rti_pocket.vocabulary import BOS, END, PAD, SHORTCUT_WORDS, WORDS, build_tokenizer


@frozen
class World:
    """A world that a base can be made for: its vocabulary, and the steps that its habits take."""

    words: tuple[str, ...]
    steps: int


WORLDS = {"pocket": World(WORDS, 2000), "shortcut": World(SHORTCUT_WORDS, 3000)}


@frozen
class WarmStart:
    """The recipe. One thread and float32: equal seeds give equal weights on one machine."""

    seed: int = 0
    steps: int = 0
    """Training steps; 0 for as many as the world takes."""
    batch_size: int = 32
    learning_rate: float = 3e-3
    style: str | None = None
    """How its corrector writes, one of `lessons.STYLES`; None for a mix of them."""
    teacher: bool = False
    """Make a teacher: it solves the hard families, and mostly talks in another hand."""
    world: str = "pocket"
    """One of `WORLDS`."""

    def __attrs_post_init__(self) -> None:
        if self.teacher and self.world != "pocket":
            raise ConfigError(
                f"--world {self.world} has no teacher: leave --teacher out, or --world."
            )
        if not self.steps:
            object.__setattr__(self, "steps", WORLDS[self.world].steps)

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary."""
        return WORLDS[self.world].words

    def draw(self, r: random.Random, count: int) -> list[Lesson]:
        """`count` lessons of the world."""
        if self.world == "shortcut":
            return shortcut_lessons.draw_lessons(r, count, self.style)
        return draw_lessons(r, count, self.style, self.teacher)


def new_model(seed: int, words: Sequence[str] = WORDS) -> Any:
    """A fresh 0.4M-parameter `LlamaForCausalLM` with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        initializer_range=0.08,
        tie_word_embeddings=False,
        pad_token_id=words.index(PAD),
        bos_token_id=words.index(BOS),
        eos_token_id=words.index(END),
    )
    return LlamaForCausalLM(config)


def encode_lesson(lesson: Lesson, words: Sequence[str] = WORDS) -> tuple[list[int], list[bool]]:
    """Token ids of a lesson, and which of them the loss is on."""
    index = {word: i for i, word in enumerate(words)}
    ids: list[int] = []
    mask: list[bool] = []
    for segment, learn in lesson.segments:
        new = [index[word] for word in segment.split()]
        ids += new
        mask += [learn] * len(new)
    return ids, mask


def warm_start(recipe: WarmStart, log: Callable[[int, float], None] | None = None) -> Any:
    """Train a fresh model by the recipe and return it. About three minutes on one core."""
    import torch
    import torch.nn.functional as F

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = new_model(recipe.seed, recipe.words).train()
        rng = random.Random(recipe.seed)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
        )
        batches: list[list[Lesson]] = []
        for step in range(recipe.steps):
            warm_up = min(1.0, (step + 1) / 50)
            cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * warm_up * cosine
            if not batches:
                batches = _similar_lengths(rng, recipe)
            batch = [encode_lesson(lesson, recipe.words) for lesson in batches.pop()]
            ids_B_T, mask_B_T = _pad(batch)
            hidden = model.model(input_ids=ids_B_T[:, :-1], use_cache=False).last_hidden_state
            learn = mask_B_T[:, 1:]
            loss = F.cross_entropy(model.lm_head(hidden[learn]), ids_B_T[:, 1:][learn])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if log is not None and (step + 1) % 100 == 0:
                log(step + 1, loss.item())
        return model.eval()
    finally:
        torch.set_num_threads(before)


def _similar_lengths(rng: random.Random, recipe: WarmStart) -> list[list[Lesson]]:
    """Four batches, each of lessons of like length: less padding, the same mixture."""
    size = recipe.batch_size
    lessons = recipe.draw(rng, 4 * size)
    lessons.sort(key=lambda lesson: sum(len(words.split()) for words, _ in lesson.segments))
    batches = [lessons[i * size : (i + 1) * size] for i in range(4)]
    rng.shuffle(batches)
    return batches


def _pad(rows: list[tuple[list[int], list[bool]]]) -> tuple[Any, Any]:
    import torch

    longest = max(len(ids) for ids, _ in rows)
    ids_B_T = torch.zeros(len(rows), longest, dtype=torch.long)
    mask_B_T = torch.zeros(len(rows), longest, dtype=torch.bool)
    for row, (ids, mask) in enumerate(rows):
        ids_B_T[row, : len(ids)] = torch.tensor(ids)
        mask_B_T[row, : len(mask)] = torch.tensor(mask)
    return ids_B_T, mask_B_T


def save_base(model: Any, folder: Path, words: Sequence[str] = WORDS) -> None:
    """Write model and tokenizer as a plain Hugging Face folder (safetensors)."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    build_tokenizer(words).save_pretrained(folder)
