"""Exported programs under AOTInductor on the CPU: right at every size, and every assertion fires."""

from __future__ import annotations

import pathlib
from typing import Any

import export_cases as cases
import pytest
import torch
from test_export import check, export

import anyshape

# What Inductor cannot lower with unbacked sizes: it wants the number of a stride (a data-dependent error, torch 2.13, 2.15).
NOT_LOWERED = ("conv1d",)


def compiled(program: Any, path: pathlib.Path) -> Any:
    made = torch._inductor.aoti_compile_and_package(program, package_path=str(path / "model.pt2"))
    return torch._inductor.aoti_load_package(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in cases.CASES if n not in NOT_LOWERED])
def test_right_at_every_size(name: str, tmp_path: pathlib.Path) -> None:
    model, program, inputs = export(name)
    with torch.no_grad():
        check(name, model, compiled(program, tmp_path), inputs)


def test_every_assertion_fires(tmp_path: pathlib.Path) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2 + y).relu()

    shapes = {"x": "n m", "y": "n m"}
    program = anyshape.export(f, (torch.ones(4, 5), torch.ones(4, 5)), shapes=shapes, where=["n != 7", "m <= 12"])
    call = compiled(program, tmp_path)
    for sizes in ((4, 5), (1, 1), (0, 3), (33, 12)):
        torch.testing.assert_close(call(torch.ones(*sizes), torch.ones(*sizes)), torch.full(sizes, 3.0))
    for x, y in (((4, 5), (3, 5)), ((4, 5), (4, 1)), ((7, 5), (7, 5)), ((4, 13), (4, 13))):
        with pytest.raises(RuntimeError, match="Expected"):
            call(torch.ones(*x), torch.ones(*y))
