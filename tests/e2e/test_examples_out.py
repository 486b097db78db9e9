"""The examples that write into buffers agree with eager and compile one program each."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
NAMES = ("beam_search_topk", "training_loop_out", "inference_lengths")


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_one_program(name: str) -> None:
    torch._dynamo.reset()
    assert _load(name).main(backend="aot_eager") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_program_with_inductor(name: str) -> None:
    torch._dynamo.reset()
    assert _load(name).main(backend="inductor") == 1
