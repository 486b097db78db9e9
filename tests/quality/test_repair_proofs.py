"""Each repair of torch in turn is left out, and its proof fails; where torch is right without it, it can go."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import torch

from anyshape._torch.repairs import registry

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import repair_proofs

SCRIPT = pathlib.Path(repair_proofs.__file__)


def ran(*names: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run([sys.executable, "-W", "ignore", str(SCRIPT), *names], capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["name"]: one for one in found}


@functools.cache
def outcomes() -> dict[str, dict[str, Any]]:
    return ran(*(name for name in repair_proofs.PROOFS if name not in repair_proofs.KILLS))


def has_the_fault(versions: str) -> bool:
    """Whether this torch is among those that are said to have it."""
    minor = int(str(torch.__version__).split(".")[1])
    first, _, last = versions.partition("-")
    return int(first.split(".")[1]) <= minor <= int((last or first).split(".")[1])


def test_every_proof_is_of_a_repair() -> None:
    assert set(repair_proofs.PROOFS) <= {one.name for one in registry.declared()}


@pytest.mark.slow
@pytest.mark.parametrize("name", repair_proofs.PROOFS)
def test_a_repair_is_needed(name: str) -> None:
    one = next(r for r in registry.declared() if r.name == name)
    if one.status != "applied":
        pytest.skip(f"{name} is {one.status} on torch {torch.__version__}")
    if name in repair_proofs.KILLS:
        assert repair_proofs.is_right(name) == (True, "")
        assert name not in ran(name), f"{name} can go: torch {torch.__version__} lives without it"
        return
    found = outcomes()[name]
    assert found["with"], found["why"]
    if found["without"] and not has_the_fault(one.broken):
        pytest.skip(f"{name} can go with torch {torch.__version__}, which is right without it")
    assert not found["without"], f"{name} can go: torch {torch.__version__} is right without it"
