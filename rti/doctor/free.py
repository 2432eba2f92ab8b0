"""How much memory is free: of the machine, of a container, of a GPU."""

from __future__ import annotations

from pathlib import Path


def free_bytes(device: str) -> int | None:
    """What is free on a device now; None where the system does not tell."""
    if device != "cpu":
        return _free_cuda(device)
    limits = [_meminfo(), _cgroup()]
    known = [n for n in limits if n is not None]
    return min(known) if known else None


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(rest.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup() -> int | None:
    """What a container's limit leaves (cgroup v2): /proc/meminfo tells the machine's."""
    base = Path("/sys/fs/cgroup")
    try:
        limit = int((base / "memory.max").read_text(encoding="ascii"))
        used = int((base / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (base / "memory.stat").read_text("ascii").splitlines())
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return None
    return max(0, limit - used + int(stat.get("inactive_file", 0)))


def _free_cuda(device: str) -> int | None:
    try:
        import torch
    except ImportError:
        return None
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return None
    return int(torch.cuda.mem_get_info(torch.device(device))[0])
