"""A small tokenizer with Qwen's added tokens, flags and pre-tokenizer, for tests of renderers.

The vocabulary is trained on a few lines; what matters to a renderer is the same as in the real
one: which tokens are added, which of them are flagged special (`<tool_call>` and `<think>` are
not), and where text is cut before merging.
"""

from __future__ import annotations

from pathlib import Path

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"
)  # fmt: skip
# The pre-tokenizer's pattern in the tokenizer.json of Qwen2 to Qwen3.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "You are a helpful agent. You may call one or more functions to assist with the user query.",
    '{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}',
    "<tool_call>\n<function=search>\n<parameter=q>\nvalue\n</parameter>\n</function>\n</tool_call>",
    "<think>\nSo the user wants the place. Let me look.\n</think>\n\nHere it is: 东涌广场.\n\n\n",
] * 8


def make_qwen_tokenizer(folder: Path) -> Path:
    """Write the tokenizer into `folder`, as a model folder without weights."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
    from tokenizers import pre_tokenizers as pre
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.Sequence(
        [pre.Split(Regex(PATTERN), "isolated"), pre.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.save_pretrained(folder)
    return folder
