"""Each test starts with nothing compiled, and torch's own log stays out of the output."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    logging.disable(logging.NOTSET)
