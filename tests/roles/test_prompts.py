"""Role prompts: what each role is shown, and what becomes of thinking."""

from __future__ import annotations

import pytest
from attrs import evolve
from fakes import ByteRenderer

from rti import (
    Correction,
    History,
    Message,
    NoCorrection,
    Provenance,
    RequestKey,
    Tool,
    ToolCall,
    Turn,
)
from rti.roles import ROLES, RolePrompt, load_template, without_thought

STAMP = Provenance("correction", "self")
TOOLS = (Tool("search", "Finds.", {"type": "object"}), Tool("reboot", owner="user"))


class Thinking(ByteRenderer):
    """Turns may begin with a block `<t>…</t>`."""

    def thought(self, ids):
        text = self.decode([i for i in ids if i < 256])
        if not text.startswith("<t>"):
            return 0
        end = text.find("</t>")
        return len(self.encode(text[: end + 4])) if end >= 0 else len(ids)


def case(reasoning="", observations=()):
    renderer = Thinking()
    messages = (
        Message("system", "House rules: be brief."),
        Message("user", "The line is dead."),
        Message("assistant", "", tool_calls=(ToolCall("search", {"q": "line"}),)),
        Message("tool", "nothing found", tool_call_id="0"),
    )
    history = History(messages, renderer.prompt(messages), TOOLS, RequestKey(task="t"))
    said = Message("assistant", "I reboot it.", reasoning)
    draft = Turn(1, history.prompt_ids, renderer.turn(said), (), said, observations=observations)
    return renderer, history, draft


@pytest.mark.parametrize("role", ROLES)
def test_every_role_sees_rules_conversation_tools_and_draft(role):
    renderer, history, draft = case()
    fixed = Message("assistant", "Please reboot it.")
    correction = Correction(renderer.turn(fixed), fixed)
    prompt = RolePrompt(load_template(role), renderer)
    text = renderer.decode(
        prompt.ids(history, draft, correction, evidence="It is up.", direction="Ask.", kind="side")
    )
    for said in ("House rules", "The line is dead", '"q": "line"', "nothing found", "I reboot it."):
        assert said in text
    assert '"name": "search"' in text
    assert "Tools that only the user has: reboot" in text
    assert ("It is up." in text) == (role != "corrector")
    assert ("Ask." in text) == (role == "corrector")
    assert ("Please reboot it." in text) == (role == "verifier")


def test_the_validator_sees_what_came_back():
    error = Message("tool", "no such tool: reboot", error=True)
    for observations, words in (
        ((error,), "no such tool: reboot"), ((), "(nothing)"), (None, "(not known yet)"),
    ):  # fmt: skip
        renderer, history, draft = case(observations=observations)
        prompt = RolePrompt(load_template("validator"), renderer)
        assert words in renderer.decode(prompt.ids(history, draft, evidence="up"))


def test_prompts_of_a_rollouts_turns_share_their_beginning():
    """So that a policy that keeps keys and values computes the shared conversation once."""
    renderer, history, draft = case()
    prompt = RolePrompt(load_template("validator"), renderer)
    first = renderer.decode(prompt.ids(history, draft, evidence="up"))
    longer = (*history.messages, draft.message, Message("user", "Still dead."))
    later = evolve(history, messages=longer, key=history.key.child(turn=2, attempt=1))
    second = renderer.decode(prompt.ids(later, draft, evidence="up"))
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert "nothing found" in first[:shared]


# --- thinking -------------------------------------------------------------------------------


def corrected(text, thinking="auto", reasoning="", empty=""):
    renderer, history, draft = case(reasoning)
    if empty:
        renderer.empty_thought = renderer.encode(empty)
    template = evolve(load_template("corrector"), thinking=thinking)
    prompt = RolePrompt(template, renderer)
    asked = prompt.ids(history, draft, direction="Ask.", kind="side")
    ids = (*renderer.encode(text), *renderer.stop_ids)
    return renderer, asked, ids, prompt.correction(asked, ids, draft, STAMP)


@pytest.mark.parametrize(
    ("thinking", "reasoning", "private"),
    [
        ("auto", "", True),  # the draft did not think aloud: the correction's thinking is private
        ("auto", "I wonder.", False),  # it did: the thinking is the turn's own
        ("private", "I wonder.", True),
        ("turn", "", False),
    ],
)
def test_thinking_is_private_or_the_turns_own_by_a_stated_rule(thinking, reasoning, private):
    renderer, asked, ids, made = corrected("<t>hm</t>Please.", thinking, reasoning)
    thought = renderer.encode("<t>hm</t>")
    if private:
        assert made.completion_ids == ids[len(thought) :]
        # What ũ was sampled after: else the numerator of its weights would be of another prompt.
        assert made.corrector_prompt_ids == (*asked, *thought)
        assert made.message.content == "Please."
    else:
        assert made.completion_ids == ids
        assert made.corrector_prompt_ids == asked


def test_a_model_whose_turns_begin_with_a_thought_gets_the_empty_one():
    renderer, asked, ids, made = corrected("<t>hm</t>Please.", "private", empty="<t></t>")
    assert made.completion_ids == (*renderer.encode("<t></t>Please."), *renderer.stop_ids)
    assert made.corrector_prompt_ids == asked
    assert made.message.token_ids == made.completion_ids
    _, asked, ids, made = corrected("Please.", "private", empty="<t></t>")
    assert (made.completion_ids, made.corrector_prompt_ids) == (ids, asked)  # nothing was cut off


@pytest.mark.parametrize("text", ["<t>hm</t>", "<t>hm", "<t>"])
def test_nothing_but_thinking_is_no_correction(text):
    with pytest.raises(NoCorrection, match="only-thinking"):
        corrected(text)


def test_a_judges_thinking_is_not_its_answer():
    renderer, _, _ = case()
    prompt = RolePrompt(load_template("verifier"), renderer)
    ids = (*renderer.encode('<t>{"agrees": true}</t>no'), *renderer.stop_ids)
    assert prompt.text(ids) == "no"
    for text, rest in [
        ("<think>a {}</think>\n\nb", "\n\nb"), ("<think>never ends", ""), ("plain", "plain"),
        ("a <think>b</think>", "a <think>b</think>"),
    ]:  # fmt: skip
        assert without_thought(text) == rest
