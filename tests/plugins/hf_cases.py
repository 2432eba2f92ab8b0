"""What the tests of the hf plug-in share: tiny real models of three families, and small batches."""

from __future__ import annotations

import random

from rti import Batch, Context, Sample
from rti.config import ModelConfig
from rti_grpo import Grpo
from rti_pocket.vocabulary import WORDS

VOCABULARY = len(WORDS)


def context(folder, objective=None, seed=0, **model):
    """A run's context without anything but a model."""
    return Context(seed, ModelConfig(path=str(folder), **model), None, None, None, objective)


def policy_of(folder, dtype="float32", device="cpu", **options):
    from rti_hf.policy import HfPolicy

    policy = HfPolicy(**options)
    policy.bind(context(folder, dtype=dtype, device=device))
    return policy


def trainer_of(folder, objective=None, dtype="float32", device="cpu", seed=0, **options):
    from rti_hf.trainer import HfTrainer

    trainer = HfTrainer(**{"learning_rate": 1e-3, "max_grad_norm": 1e9, **options})
    trainer.bind(context(folder, objective or Grpo(), seed, dtype=dtype, device=device))
    return trainer


def random_sample(seed, group=0, rollout=None, weight=1.0):
    """Prompt, response, tool, response: with pads and ends of turn among the tokens."""
    r = random.Random(seed)
    ids, mask = [], []
    for part in range(4):
        n = r.randint(2, 7)
        ids += [r.choice((0, 2, *range(VOCABULARY))) for _ in range(n)]
        mask += [part % 2 == 1] * n
    advantage = r.choice((-1.0, 0.7))
    return Sample(
        group=group,
        rollout=seed if rollout is None else rollout,
        token_ids=tuple(ids),
        loss_mask=tuple(mask),
        rollout_logprobs=tuple(-3 - 7 * r.random() if m else 0.0 for m in mask),
        advantages=tuple(advantage * r.choice((1.0, weight)) if m else 0.0 for m in mask),
        weights=tuple(1.0 for _ in mask),
    )


BATCH = Batch(tuple(random_sample(i, weight=1.2) for i in range(6)))
SPLIT = Batch(tuple(random_sample(i, rollout=i // 2) for i in range(6)))


def optimiser(trainer, folder):
    """The optimiser's tensors, as saved."""
    from safetensors.torch import load_file

    folder.mkdir(parents=True, exist_ok=True)
    trainer.save(folder)
    return load_file(folder / "optimiser.safetensors")


def tiny(family, seed=1):
    """A random model of a real architecture, uneven enough to tell right from wrong."""
    import torch
    import transformers

    name, tied = {
        "llama": ("Llama", False),
        "qwen2": ("Qwen2", True),  # with biases on q, k and v
        "qwen3": ("Qwen3", False),  # with norms on q and k
        "qwen3-tied": ("Qwen3", True),
    }[family]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, initializer_range=0.2,
        max_position_embeddings=256, tie_word_embeddings=tied,
    )  # fmt: skip
    torch.manual_seed(seed)
    return getattr(transformers, f"{name}ForCausalLM")(config)


def tiny_folder(family, folder, seed=1):
    """The same as a plain Hugging Face folder with a tokenizer."""
    from rti_pocket.warmstart import save_base

    save_base(tiny(family, seed), folder)
    return folder


FAMILIES = ("llama", "qwen2", "qwen3", "qwen3-tied")
