"""Each test starts with nothing compiled and the same random numbers."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
