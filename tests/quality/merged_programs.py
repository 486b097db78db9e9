"""Functions that branch on sizes of 1, some to do the same on both sides and some not, with calls that tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F


def expands(x: torch.Tensor) -> Any:
    """As transformers does with the ids of positions."""
    batch, length = x.shape
    places = torch.arange(length)[None]
    if batch != places.shape[0]:
        places = places.expand(batch, -1)
    return (places * 2 + x).transpose(0, 1).contiguous().sum(1)


def weighs(x: torch.Tensor) -> Any:
    weights = torch.tensor([1.0, 2.0, 4.0])
    rows = x.expand(x.shape[0], -1) if x.shape[0] != 1 else x
    return (rows.sum(1) * 2).sum() * weights


def masks(x: torch.Tensor) -> Any:
    """As transformers does with attention."""
    heads = x[:, None, :, None].expand(-1, 2, -1, 8) * torch.arange(1.0, 9.0)
    causal = x.shape[1] > 1
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)


def masks_by_batch(x: torch.Tensor) -> Any:
    heads = x[:, None, :, None].expand(-1, 2, -1, 8) * torch.arange(1.0, 9.0)
    causal = x.shape[0] > 1
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)


def computes_another(x: torch.Tensor) -> Any:
    return x * 2 if x.shape[0] > 1 else x * 3


def names_another(x: torch.Tensor) -> Any:
    return (x + 1, "many") if x.shape[0] > 1 else (x + 1, "one")


def differs_within(x: torch.Tensor) -> Any:
    if x.shape[0] > 1:
        return x * 2
    return x * 5 if x.shape[1] == 1 else x * 2


def adds_one_place(x: torch.Tensor) -> Any:
    first = x[:, :1]
    return x + first if x.shape[0] > 1 else x + first.t()


FLAGS = {"is_up": False}


def reads_a_flag(x: torch.Tensor) -> Any:
    if x.shape[0] == 1 and FLAGS["is_up"]:
        return x * 3
    return x * 2


SIZES = ((3, 5), (1, 4), (1, 1), (4, 1), (1, 7), (1, 1), (2, 2))
ONE_FIRST = ((1, 4), (1, 1), (4, 1), (3, 5), (1, 7), (1, 1), (2, 1), (2, 2), (1, 4))  # its program is not needed later
SAME: tuple[tuple[Callable[..., Any], int], ...] = (
    (expands, 1),
    (masks, 1),
    (weighs, 1),
)  # and how many programs are enough
OTHERS = (masks_by_batch, computes_another, names_another, differs_within, adds_one_place)


def outcomes(f: Callable[..., Any], sizes: Sequence[tuple[int, int]] = SIZES) -> list[Any]:
    """What calls of all sizes give; what one raises is what it gives."""
    torch.manual_seed(0)
    found: list[Any] = []
    for size in sizes:
        try:
            found.append(f(torch.randn(*size)))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def alike(ours: list[Any], eagers: list[Any]) -> bool:
    try:
        torch.testing.assert_close([_tensors(x) for x in ours], [_tensors(x) for x in eagers])
    except AssertionError:
        return False
    return [_names(x) for x in ours] == [_names(x) for x in eagers]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, torch.Tensor)]


def _names(value: Any) -> list[Any]:
    return [x for x in (value if isinstance(value, tuple) else (value,)) if not isinstance(x, torch.Tensor)]
