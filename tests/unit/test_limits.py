"""Limits that the environment sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anyshape
from anyshape.foundation import limits
from anyshape.testing import difference


@pytest.mark.parametrize("name", [limits.KEYS, limits.VARIANTS, limits.VARIANT_BYTES, limits.CUDA_GRAPHS])
@pytest.mark.parametrize("text", ["many", "-1", "1.5", ""])
def test_what_is_no_number_is_refused_with_a_fix(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: dict[str, Callable[[], int]] = {
        limits.KEYS: limits.keys,
        limits.VARIANTS: limits.variants,
        limits.VARIANT_BYTES: limits.variant_bytes,
        limits.CUDA_GRAPHS: limits.cuda_graphs,
    }
    default = reads[name]()
    monkeypatch.setenv(name, text)
    with pytest.raises(anyshape.DeclarationError, match=rf"AS007: {name} is a whole number") as raised:
        reads[name]()
    assert f"export {name}={default}" in str(raised.value)


def test_compile_refuses_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.KEYS, "0")
    with pytest.raises(anyshape.DeclarationError, match=limits.KEYS):
        anyshape.compile(torch.sin, backend="aot_eager")(torch.ones(2))


def test_no_more_keys_are_remembered_and_all_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.KEYS, "4")
    fn = lambda x: x.sum(0) + x.shape[0]
    f = anyshape.compile(fn, backend="aot_eager")
    for n in (*range(12), *range(12)):
        assert difference(fn, f, (torch.randn(n, 3),)) is None
    (program,) = f._engine.programs
    assert program.admission is not None and 0 < len(program.admission.known) <= 4
    assert len(f.programs) == 1


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "1e300", "1,5", "9" * 5000, "\x1b[2J", "None"])
def test_patience_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(limits.PATIENCE, text)
    with pytest.raises(anyshape.DeclarationError) as caught:
        limits.patience()
    assert caught.value.code == "AS007" and "\x1b" not in str(caught.value)
    for text, seconds in (("2", 2.0), (" 0.5 ", 0.5), ("1e3", 1000.0)):
        monkeypatch.setenv(limits.PATIENCE, text)
        assert limits.patience() == seconds
    monkeypatch.delenv(limits.PATIENCE)
    assert limits.patience() == 60.0
