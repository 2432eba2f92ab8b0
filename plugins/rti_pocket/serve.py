"""`rti pocket serve`: a pocket model behind the OpenAI completions interface, on loopback.

A teacher for the pocket worlds that needs no key and no GPU. One request at a time; text in, text
out. It has no chat format, and says so.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from rti_pocket.completions import Completions, Refused

if TYPE_CHECKING:
    from rti_pocket.generate import Generator

MAX_BODY = 1 << 20
"""Most bytes of a request."""
IDLE_SECONDS = 120.0
"""A connection on which nothing comes for so long is closed."""


def add_serve(sub: Any) -> None:
    """Add the action to the sub-parsers of `rti pocket`."""
    parser: argparse.ArgumentParser = sub.add_parser(
        "serve",
        help="serve a pocket model over HTTP, as a teacher to try",
        description="Serve a pocket model through OpenAI's /v1/completions, for a run with "
        "corrector.use=teacher. Prints its URL and serves until Ctrl-C. It asks for no key: keep "
        "it on loopback.",
    )
    parser.add_argument(
        "--model", default="rti_pocket:base", metavar="PATH", help="a pocket model's folder"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port (default: a free one)")
    parser.add_argument("--seed", type=int, default=0, help="draws of requests without a seed")
    parser.set_defaults(run=serve)


def serve(args: argparse.Namespace, registry: Any) -> int:
    """Serve until interrupted."""
    import torch

    from rti import ConfigError
    from rti_pocket.generate import Generator

    torch.set_num_threads(1)
    generator = Generator.load(args.model)
    try:
        server = PocketServer((args.host, args.port), generator, args.model, args.seed)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--host {args.host} --port {args.port}: cannot listen there ({error}). Choose "
            "another port; 0 takes a free one."
        ) from error
    with server:
        print(f"serving {args.model} at {server.url}", flush=True)
        print(
            "try: rti train recipes/pocket-rti.toml --set corrector.use=teacher "
            f"--set teacher.base_url={server.url}",
            flush=True,
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
    return 0


class PocketServer(ThreadingHTTPServer):
    """The server: one thread a connection, one model behind them."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], generator: Generator, name: str, seed: int = 0
    ) -> None:
        self.completions = Completions(generator, name, seed)
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Where it is, as `[teacher] base_url` wants it."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: PocketServer

    def do_GET(self) -> None:
        """List the model."""
        if self._path() == "/v1/models":
            return self._send(200, self.server.completions.models())
        return self._refuse(_no_such(self._path()))

    def do_POST(self) -> None:
        """Complete a prompt."""
        try:
            asked = self._read()
            if self._path() != "/v1/completions":
                raise _no_such(self._path())
            answer = self.server.completions.complete(asked)
        except Refused as refused:
            return self._refuse(refused)
        return self._send(200, answer)

    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _read(self) -> Mapping[str, Any]:
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > MAX_BODY:
            self.close_connection = True  # what follows on this connection cannot be told apart
            raise Refused(f"Content-Length = {size!r}: give it, and at most {MAX_BODY} bytes.", 413)
        try:
            asked = json.loads(self.rfile.read(int(size)))
        except (ValueError, RecursionError):
            raise Refused("The body is not JSON.") from None
        if not isinstance(asked, dict):
            raise Refused("The body must be a JSON object.")
        return asked

    def _refuse(self, refused: Refused) -> None:
        self._send(refused.status, refused.body)

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        raw = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        except ConnectionError:  # whoever asked has gone
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a run asks hundreds of times a step."""


def _no_such(path: str) -> Refused:
    chat = " This model has no chat format." if path.endswith("/chat/completions") else ""
    return Refused(
        f"There is no {path}.{chat} There are /v1/models and /v1/completions.", 404, "", "not_found"
    )
