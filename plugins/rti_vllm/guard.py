"""Runs a server for as long as its parent lives, and ends all its processes with it.

    python guard.py COMMAND [ARGUMENT ...]      # stdin: a pipe that the parent holds open

vLLM is several processes. Whatever happens to the parent, SIGKILL included, the pipe closes; the
whole process group then gets SIGTERM, and SIGKILL when that was not enough. It is a file of its
own, run by path: it must start at once, and import nothing but the standard library.
"""

import os
import select
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 10.0
POLL_SECONDS = 0.5


def main() -> int:
    """Run the command; return its exit status, or 0 when the parent went first."""
    parent = os.getppid()
    if os.getpgid(0) != os.getpid():
        os.setsid()  # a group of its own: Ctrl-C in the terminal is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent below to the group, this process included
    server = subprocess.Popen(  # noqa: S603 - the caller's own command
        sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_listen_again
    )
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if os.getppid() != parent or (readable and not os.read(sys.stdin.fileno(), 1)):
            break
    status = server.poll()
    # Also when the server ended by itself: its workers may have outlived it.
    os.killpg(0, signal.SIGTERM)
    ends = time.monotonic() + (GRACE_SECONDS if status is None else 1.0)
    while time.monotonic() < ends and server.poll() is None:
        time.sleep(0.05)
    os.killpg(0, signal.SIGKILL) if status is None else _kill_others()
    return status or 0


def _listen_again() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _kill_others() -> None:
    """SIGKILL to the rest of the group: this process still has an exit status to hand on."""
    group = os.getpgid(0)
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getpgid(int(name)) == group:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue  # it ended by itself, or is somebody else's


if __name__ == "__main__":
    sys.exit(main())
