"""A second pocket model as teacher, over real HTTP: the server, and whose tokens are trained."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_endpoint import STALL, Scripted, chat
from test_rti_teacher import ACCEPTS, TeacherValidator, bound, context

from rti import RequestKey, SamplingParams
from rti.cli import main
from rti.records import repaired_turns

torch = pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")
from rti_pocket.generate import Generator  # noqa: E402
from rti_pocket.lessons import corrector_lesson  # noqa: E402
from rti_pocket.serve import PocketServer  # noqa: E402
from rti_pocket.warmstart import encode_lesson  # noqa: E402

BASE = "rti_pocket:base"


@contextmanager
def serving(generator, name="teacher", seed=0):
    server = PocketServer(("127.0.0.1", 0), generator, name, seed)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def base():
    return Generator.load(BASE)


@pytest.fixture(scope="module")
def rambling():
    """The base model after a short lesson in rambling: a teacher that does not talk as the student.

    Half of what it has to say is drawn from a list of filler words, which no agent ever says.
    """
    made = Generator.load(BASE)
    rng, model = random.Random(0), made.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(30):
        lessons = [encode_lesson(corrector_lesson(rng, "ramble")) for _ in range(8)]
        loss = 0.0
        for ids, learn in lessons:
            logits_T_V = model(torch.tensor([ids])).logits[0, :-1]
            where = torch.tensor(learn[1:])
            loss = loss + torch.nn.functional.cross_entropy(
                logits_T_V[where], torch.tensor(ids[1:])[where]
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    return made


# --- the server -----------------------------------------------------------------------------

PROMPT = (
    "<s> telecom tools : t5 t0 @agent , t22 t1 @user . user : line 4 3 broken , fix is t22 t1 . "
    "agent :"
)


def post(url, body, path="/completions"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_it_answers_as_the_model_itself_would(base, pocket):
    run = pocket(trains=False)
    ids = run.renderer.encode(PROMPT)
    with serving(base) as server:
        asked = {
            "prompt": PROMPT,
            "max_tokens": 20,
            "temperature": 0,
            "logprobs": 1,
            "model": "teacher",
        }
        status, body = post(server.url, asked)
        with urllib.request.urlopen(f"{server.url}/models", timeout=20) as answer:
            assert json.load(answer)["data"][0]["id"] == "teacher"
    [drawn] = asyncio.run(
        run.policy.sample(
            [ids], SamplingParams(20, temperature=0.0), [RequestKey()], run.renderer.stop_ids
        )
    )
    choice = body["choices"][0]
    assert status == 200
    assert choice["text"] == run.renderer.decode(drawn.token_ids[:-1])  # without its end of turn
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"][-1] == "<e>"
    told = choice["logprobs"]["token_logprobs"]
    assert told == pytest.approx(list(drawn.logprobs), abs=1e-4)
    used = {"prompt_tokens": len(ids), "completion_tokens": len(told)}
    assert body["usage"] == {**used, "total_tokens": sum(used.values())}


def test_draws_follow_the_seed_and_echo_scores_the_prompt(base):
    with serving(base, seed=7) as server:

        def text(**more: Any) -> str:
            return post(server.url, {"prompt": PROMPT, "max_tokens": 20, **more})[1]["choices"][0][
                "text"
            ]

        drawn = [text(seed=s) for s in range(6)]
        assert drawn == [text(seed=s) for s in range(6)]
        assert len(set(drawn)) > 1
        assert len({text() for _ in range(6)}) > 1  # without a seed each request draws anew
        _, body = post(server.url, {"prompt": PROMPT, "max_tokens": 1, "echo": True, "logprobs": 0})
    shown = body["choices"][0]["logprobs"]
    assert shown["tokens"][:-1] == PROMPT.split()
    assert shown["token_logprobs"][0] is None
    assert all(value <= 0 for value in shown["token_logprobs"][1:])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"[1]", 400, "JSON object"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": [1, 2]}, 400, "prompt"),
        ({"prompt": "hello world"}, 400, "'hello'"),
        ({"prompt": PROMPT, "max_tokens": 4000}, 400, "context length is 512"),
        ({"prompt": PROMPT, "max_tokens": "many"}, 400, "max_tokens"),
        ({"prompt": PROMPT, "temperature": -1}, 400, "temperature"),
        ({"prompt": PROMPT, "seed": "x"}, 400, "seed"),
        ({"prompt": PROMPT, "stop": ["nowhere"]}, 400, "stop"),
        ({"prompt": PROMPT, "n": 2}, 400, "n = 2"),
        ({"prompt": PROMPT, "response_format": {"type": "json_schema"}}, 400, "response_format"),
        ({"prompt": PROMPT, "model": "other"}, 404, "'other' does not exist"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_it_says_as_openai_does(base, body, status, words):
    with serving(base) as server:
        got, told = post(server.url, body)
    assert got == status
    assert words in told["error"]["message"]
    assert told["error"]["type"] == "invalid_request_error"


def test_it_has_no_chat_and_says_so(base):
    with serving(base) as server:
        status, told = post(server.url, {"messages": []}, "/chat/completions")
        assert status == 404
        assert "no chat format" in told["error"]["message"]


def test_a_port_that_is_taken_is_told(base, capsys):
    with serving(base) as server:
        port = server.server_address[1]
        assert main(["pocket", "serve", "--port", str(port)]) == 2
    assert f"--port {port}" in capsys.readouterr().err


# --- whose tokens are trained ---------------------------------------------------------------


def collected(pocket, url, *more):
    """One step of the pocket worlds in which the agent hands over at once: all groups fail."""
    run = pocket(
        "corrector.use=teacher", f"teacher.base_url={url}", "rollout.max_new_tokens=20",
        "rollout.families={AH = 2, BH = 2}", "verifier.use=[]", *more, trains=False,
    )  # fmt: skip
    tasks = [t for t in run.environment.tasks("train") if t.family in ("AH", "BH")]
    chosen = tasks[:2] + [t for t in tasks if t.family == "BH"][:2]
    batch = asyncio.run(run.collector.collect(chosen, 0))
    return batch, list(repaired_turns(batch.interventions, 0, run.renderer)), run


def test_a_teachers_tokens_are_trained_and_say_so(pocket, base):
    """The shipped model behind HTTP: another server, no other hand."""
    with serving(base) as server:
        batch, told, run = collected(pocket, server.url)
    trained = [e for e in told if e.trained]
    assert trained
    for event in trained:
        assert event.provenance["plugin"] == "teacher"
        assert event.provenance["model"] == "teacher"
        assert event.provenance["template"]
        assert event.perplexity <= 5.0
    spans = [
        s for sample in batch.samples for s in sample.spans if s.provenance.kind == "correction"
    ]
    assert len(spans) == len(trained)
    assert {s.provenance.plugin for s in spans} == {"teacher"}
    # The weight's numerator is the student's own, under the student's prompt.
    one = next(r for r in batch.interventions if r.trained)
    asked = run.renderer.decode(one.correction.corrector_prompt_ids)
    assert asked.endswith(f"feedback : {one.diagnosis.direction} . rewrite :")
    [again] = asyncio.run(
        run.policy.score([one.correction.corrector_prompt_ids], [one.correction.completion_ids], 0)
    )
    assert again == pytest.approx(one.corrector_logprobs, abs=1e-4)
    assert any(w != 1.0 for w in one.weights)


def test_the_gate_refuses_a_teacher_with_another_hand_and_a_wide_one_admits_it(pocket, rambling):
    with serving(rambling, "rambling") as server:
        strict, told, _ = collected(pocket, server.url, "gate.delta=5.0")
        wide, wider, _ = collected(pocket, server.url, "gate.delta=inf")
    gated = [e for e in told if e.stage == "gated"]
    assert len(gated) >= 3
    assert not any(e.trained for e in told)
    assert all(e.perplexity > 5.0 for e in gated)
    assert all(e.provenance["plugin"] == "teacher" for e in gated)
    assert not any(s.provenance.kind == "correction" for x in strict.samples for s in x.spans)
    assert any(e.trained and e.perplexity > 5.0 for e in wider)
    assert any(s.provenance.plugin == "teacher" for x in wide.samples for s in x.spans)


# --- what the doctor hears ------------------------------------------------------------------


def checked(role):
    async def ask():
        try:
            return await role.check()
        finally:
            await role.close()

    return asyncio.run(ask())


def test_the_doctor_hears_what_the_pocket_server_can_do(pocket, base):
    with serving(base) as server:
        world = SimpleNamespace(prompts="rti_pocket")
        where = context(server, pocket(trains=False).renderer, world)
        role = bound(TeacherValidator, where)
        found = checked(role)
        assert role.usage["teacher/requests"] <= 3
        assert len(checked(bound(TeacherValidator, where))) == 1  # not asked twice
    text = "\n".join(f"{level}: {words}" for level, words in found)
    assert "error" not in dict(found)
    assert "ok" in dict(found)
    assert "note: " in text
    assert "no chat completions, which these role prompts do not need" in text
    assert "gives logprobs of given text" in text


@pytest.mark.filterwarnings("ignore:The teacher at")
def test_the_doctor_hears_what_is_missing():
    def plain(body):
        if "response_format" in body or "logprobs" in body:
            name = "response_format" if "response_format" in body else "logprobs"
            return 400, {"error": {"message": f"{name} is not supported", "param": name}}
        return chat(ACCEPTS)

    with Scripted([plain]) as server:
        found = checked(bound(TeacherValidator, context(server)))
    levels = [level for level, _ in found]
    text = "\n".join(words for _, words in found)
    assert "error" not in levels
    assert "takes no JSON schema" in text
    assert "gives no logprobs of chat completions" in text


def test_the_doctor_hears_of_errors_in_time():
    with Scripted([STALL]) as server:
        found = checked(bound(TeacherValidator, context(server, timeout_s=0.3)))
    assert [w for level, w in found if level == "error" and "did not answer" in w]
    with Scripted([chat("x")], models=["a", "b"]) as server:
        found = checked(bound(TeacherValidator, context(server, model="c")))
        assert server.asked == []
    assert [w for level, w in found if level == "error" and "serves no 'c' but a, b" in w]
    with Scripted([chat("x")]) as server:
        role = bound(TeacherValidator, context(server, max_requests=1))
        checked(role)
        assert len(server.asked) == 1  # the budget holds for the doctor too
