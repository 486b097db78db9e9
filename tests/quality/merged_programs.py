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


def splits(x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
    """As GPT-2 does: that a length is 1 divides by it what there is to split."""
    y = x * 2 if y is None else y
    causal, same = x.shape[1] > 1, x.shape[1] == y.shape[1]
    wide = (x[..., None] * torch.arange(1.0, 9.0)).flatten(0, 1) @ torch.ones(8, 24)
    parts = wide.view(*x.shape, 24).split(8, 2)
    heads = [p.view(*p.shape[:-1], -1, 4).transpose(1, 2) for p in parts]
    return F.scaled_dot_product_attention(*heads, is_causal=causal), y * 2 if same else None


def masks_by_batch(x: torch.Tensor) -> Any:
    heads = x[:, None, :, None].expand(-1, 2, -1, 8) * torch.arange(1.0, 9.0)
    causal = x.shape[0] > 1
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)


def computes_another(x: torch.Tensor) -> Any:
    return x * 2 if x.shape[0] > 1 else x * 3


def names_another(x: torch.Tensor) -> Any:
    return (x + 1, "many") if x.shape[0] > 1 else (x + 1, "one")


def gives_other_memory(x: torch.Tensor) -> Any:
    """What is written to the one result shows in the other, or does not."""
    first = x + 1
    second = first.view(x.shape) if x.shape[0] > 1 else first.clone()
    return first, second


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
    (splits, 1),
)  # and how many programs are enough
OTHERS = (masks_by_batch, computes_another, names_another, gives_other_memory, differs_within, adds_one_place)


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
    same_memory = [_sharing(x) for x in ours] == [_sharing(x) for x in eagers]
    return same_memory and [_names(x) for x in ours] == [_names(x) for x in eagers]


def _sharing(value: Any) -> list[bool]:
    memory = [x.untyped_storage().data_ptr() for x in _tensors(value)]
    return [a == b for a in memory for b in memory]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, torch.Tensor)]


def _names(value: Any) -> list[Any]:
    return [x for x in (value if isinstance(value, tuple) else (value,)) if not isinstance(x, torch.Tensor)]
