"""The order in which dims lie in memory.

Owns reading it off sizes and strides, those of dims that address nothing too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def dense_order(sizes: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Dims from innermost to outermost if every stride, also of a dim that addresses nothing, follows from them."""
    order = sorted(range(len(sizes)), key=lambda i: (strides[i], sizes[i] > 1, -i))
    expected = 1
    for i in order:
        if strides[i] != expected:
            return None
        expected *= max(sizes[i], 1)
    return order


def memory_order(sizes: Sequence[int], strides: Sequence[int], rank: Callable[[int], int | None]) -> list[int]:
    """Dims from innermost to outermost; those without a rank keep the place they have in a contiguous tensor."""
    dims = len(sizes)
    ranked = sorted((i for i in range(dims) if rank(i)), key=lambda i: (rank(i), -i))
    if like_channels_last(sizes, strides):
        return _channels_last(dims)
    if ranked == sorted(ranked, reverse=True):
        return list(range(dims))[::-1]
    dense = dense_order(sizes, strides)
    if dense is not None:
        return dense
    order = ranked
    for i in range(dims):
        if i not in ranked:
            # Beside its right-hand neighbour if that has a place, else innermost.
            right = next((j for j in range(i + 1, dims) if j in order), None)
            order.insert(order.index(right) + 1 if right is not None else 0, i)
    return order


def like_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether eager takes an image, or a signal, for channels last, and lays its results out so.

    It looks at all strides, also at those of a dim of size 1: what says so for one channel shows where there are more.
    """
    if len(sizes) not in (3, 4, 5) or strides[1] == 0:
        return False
    least = 0
    for i in _channels_last(len(sizes)):
        if sizes[i] == 0 or strides[i] < least or (i == 0 and least == strides[1]):
            return False
        least = strides[i] * sizes[i]
    return True


def _channels_last(dims: int) -> list[int]:
    return [1, *range(dims - 1, 1, -1), 0]
