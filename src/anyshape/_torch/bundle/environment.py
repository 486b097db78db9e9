"""Versions, platform, instruction set and devices that compiled code depends on.

Owns the facts: versions, the platform, the instruction set, the devices. They are compared as text.
"""

from __future__ import annotations

import importlib.util
import platform
import sys

import torch

from anyshape._version import __version__

_EXTENSIONS = ("_is_amx_tile_supported", "_is_avx512_bf16_supported", "_is_vnni_supported")


def here() -> dict[str, str]:
    """The facts of this process; `device` lists all that are here."""
    return {
        "anyshape": __version__,
        "torch": f"{torch.__version__} {(torch.version.git_version or '')[:12]}".strip(),
        "python": f"{platform.python_version()} {importlib.util.MAGIC_NUMBER.hex()}",
        "platform": f"{sys.platform} {platform.machine()} {platform.libc_ver()[0]}".strip(),
        "cpu": _cpu(),
        "device": ", ".join(["cpu", *_gpus()]),
    }


def needed(device_types: set[str]) -> dict[str, str]:
    """The facts that code for these devices needs."""
    gpus = _gpus() if "cuda" in device_types else []
    return {**here(), "device": gpus[0] if gpus else "cpu"}


def _cpu() -> str:
    found = [n.removeprefix("_is_").removesuffix("_supported") for n in _EXTENSIONS if _has(n)]
    return " ".join([torch.backends.cpu.get_cpu_capability(), *found])


def _has(name: str) -> bool:
    probe = getattr(torch.cpu, name, None)
    return bool(probe is not None and probe())


def _gpus() -> list[str]:
    if not torch.cuda.is_available():
        return []
    kinds = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    runtime = torch.version.cuda or torch.version.hip
    return [f"cuda {runtime} sm_{major}{minor}" for major, minor in sorted(kinds)]
