"""Families of models, with a mask and a cache and without: two programs at most, and never eager."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from benchmarks import families


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "mask", "cache", "programs"),
    [("llama", True, "begun", 1), ("gpt2", True, "none", 1), ("gpt2", False, "held", 2), ("t5", False, "none", 2)],
)
def test_seven_sizes(family: str, mask: bool, cache: str, programs: int) -> None:
    _, found = families.measure(family, mask=mask, cache=cache, layers=1)
    assert found["wrong"] == found["eager"] == 0
    assert found["programs"] <= programs
