"""Each test starts with nothing compiled and the same random numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyshape._torch.runtime import shortcuts


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call that may go straight to its program, whether it did."""
    seen: list[bool] = []
    find = shortcuts.Shortcut.find

    def counting(self: Any, args: Any, kwargs: Any) -> Any:
        run = find(self, args, kwargs)
        seen.append(run is not None)
        return run

    monkeypatch.setattr(shortcuts.Shortcut, "find", counting)
    return seen
