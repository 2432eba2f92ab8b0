"""A real HTTP server on loopback whose answers a test writes down beforehand.

Each request takes the next answer of the script, and the last one for ever. An answer is text (a
whole chat completion), a dict (the body as it is), bytes (a body that may be no JSON), a pair
(status, dict of an error), a triple with headers, STALL (never answers), KILL (hangs up), or a
function of the request that returns one of these.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field

STALL, KILL = "<stall>", "<kill>"


def chat(text: str | None = "", finish: str = "stop", usage: Any = (10, 5), **message: Any) -> Any:
    """The body of a chat completion."""
    body: dict[str, Any] = {
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ]
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return body


def completion(text: str, finish: str = "stop") -> Any:
    """The body of a plain-text completion."""
    return {"choices": [{"index": 0, "finish_reason": finish, "text": text}]}


def call(name: str, arguments: str) -> dict[str, Any]:
    """A native tool call."""
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@define
class Scripted:
    """The server, its script, and what it was asked: (path, headers, body)."""

    script: list[Any]
    models: list[str] = field(factory=lambda: ["gpt-loopback"])
    delay: float = 0.0
    asked: list[tuple[str, dict[str, str], Any]] = field(factory=list)
    most_at_once: int = 0
    _now: int = field(init=False, default=0)
    _lock: Any = field(init=False, factory=threading.Lock)
    _release: Any = field(init=False, factory=threading.Event)
    _server: Any = field(init=False, default=None)

    def __enter__(self) -> Scripted:
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send(200, {"data": [{"id": name} for name in script.models]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with script._lock:
                    script.asked.append((self.path, dict(self.headers), body))
                    script._now += 1
                    script.most_at_once = max(script.most_at_once, script._now)
                    answer = script.script.pop(0) if len(script.script) > 1 else script.script[0]
                time.sleep(script.delay)
                with script._lock:
                    script._now -= 1
                self.answer(answer(body) if callable(answer) else answer)

            def answer(self, answer: Any) -> None:
                if answer == STALL:
                    script._release.wait(30)
                    self.close_connection = True
                elif answer == KILL:
                    self.close_connection = True
                elif isinstance(answer, tuple):
                    self.send(*answer)
                else:
                    self.send(200, chat(answer) if isinstance(answer, str) else answer)

            def send(self, status: int, body: Any, headers: Any = ()) -> None:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.asked]
