"""What this machine has."""

import os
from pathlib import Path

import torch


def free_memory(device: torch.device) -> int:
    """Bytes that can be had on the device; on the CPU, what the machine has available and the container allows."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = [2**63]
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):  # no Linux
        if hasattr(os, "sysconf"):
            free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    for group in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                free.append(int((group / most).read_text()) - int((group / used).read_text()))
            except (OSError, ValueError):  # no such group, or "max"
                continue
    return max(0, min(free))
