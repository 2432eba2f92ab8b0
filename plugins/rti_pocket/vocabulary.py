"""The vocabularies of the pocket worlds, and the ordinary word-level tokenizer over one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rti_pocket.world import CITIES, DIGITS, IDS, NAMES, TOOLS

PAD, BOS, END = "<pad>", "<s>", "<e>"
FILLER = (
    "on reflection the better move is to let handle narrow please proceed must wants step "
    "so for now and well maybe then really just"
).split()
_WORDS = (
    "telecom nav user agent env : . , tools @agent @user line broken frozen fix is reboot go to "
    "any in by city need time run the call ask close transfer code done denied did it can not "
    "look for let me find checking now search found take this one good match route partial exact "
    "nothing id giving up sorry all set rubric final runs judge verify feedback rewrite ok bad "
    "must answer says wants accept reject leak wrong wait on reflection better move handle narrow "
    "dear customer kindly proceed step concerns please oops only unknown see what be here one "
    "moment i into"
).split()
WORDS: tuple[str, ...] = tuple(
    dict.fromkeys([PAD, BOS, END, *_WORDS, *FILLER, *NAMES, *TOOLS, *CITIES, *DIGITS, *IDS])
)

_SHORTCUT_WORDS = (
    "telecom nav user agent env : . , line broken frozen go to in by city need time run the ask "
    "read check close search route map case again next all set done now old code did it look let "
    "me find checking found take this one good match partial exact moved locked id nothing rubric "
    "final judge verify feedback rewrite ok bad must answer is says wants accept reject leak wrong "
    "wait oops"
).split()
SHORTCUT_WORDS: tuple[str, ...] = tuple(
    dict.fromkeys([PAD, BOS, END, *_SHORTCUT_WORDS, *FILLER, *NAMES, *CITIES, *IDS])
)
"""The short-cut world's own: its base models have their own tokenizer."""


def build_tokenizer(words: Sequence[str] = WORDS) -> Any:
    """A `PreTrainedTokenizerFast` with one token a word. Unknown words become `<pad>`."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=PAD))
    inner.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=PAD, unk_token=PAD, bos_token=BOS, eos_token=END
    )
