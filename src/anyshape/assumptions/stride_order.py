"""Stride order: the order of dims in memory, read off sizes and strides, symbolic ones too.

Owns reading it off sizes and strides, those of dims that address nothing too, and strides as expressions of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy


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


def symbolic_strides(
    sizes: Sequence[int],
    strides: Sequence[int],
    symbols: Sequence[sympy.Expr],
    free_stride: Callable[[int], sympy.Expr],
) -> list[sympy.Expr]:
    """Strides as expressions of the sizes where the layout is dense; what is neither dense nor expanded is free."""
    result: list[sympy.Expr | None] = [None] * len(sizes)
    empty = 0 in sizes
    # Dims in memory order; a dim of size 1 (or any dim of an empty tensor) addresses nothing and takes the place
    # that it has in a contiguous tensor.
    rank = lambda i: strides[i] if sizes[i] != 1 and not empty else None
    order = memory_order(sizes, strides, rank)
    expected, expression = 1, sympy.Integer(1)
    for i in order:
        stride = strides[i]
        if empty or sizes[i] == 1 or stride == expected:
            result[i] = expression
        elif stride == 0:
            result[i] = sympy.Integer(0)
            continue
        else:
            result[i] = free_stride(i)
            expected, expression = stride, result[i]
        expected = expected * max(sizes[i], 1)
        expression = expression * symbols[i]
    return [s for s in result if s is not None]


def like_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether eager takes an image, or a signal, for channels last, and lays its results out so.

    It looks at all strides, also at those of a dim of size 1: what says so for one channel shows where there are more.
    A matrix is a signal without a batch.
    """
    if len(sizes) == 2:
        sizes, strides = (1, *sizes), (strides[0] * sizes[0], *strides)
    if len(sizes) not in (3, 4, 5) or strides[1] == 0:
        return False
    least = 0
    for i in _channels_last(len(sizes)):
        if sizes[i] == 0 or strides[i] < least or (i == 0 and least == strides[1]):
            return False
        least = strides[i] * sizes[i]
    return True


def _channels_last(dims: int) -> list[int]:
    return [0, 1] if dims == 2 else [1, *range(dims - 1, 1, -1), 0]
