"""Sizes that calls will likely have, judged before one has them: a size of 1, beside small and large ones.

Owns which sizes these are. A node answers otherwise at a size of 1 than elsewhere, and some ask there whether the
others are beyond a threshold. What is learned of nodes, and how, is the admission's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

LARGE = 256  # beyond the thresholds of kernels on CPUs, in a product with any other size
MOST_FREE = 8  # sizes of a program that are varied: others are mostly alike, in other nodes of the same kinds

Key = tuple[int, ...]


def likely(seen: Collection[Key], sizes: Collection[int]) -> Iterator[Key]:
    """Keys in which one size is 1, and the others as small as they were or large; `sizes` are their places in a key.

    Sizes that were equal in all calls seen are taken for one, and those that never changed are not taken for large.
    """
    groups: dict[Key, list[int]] = {}
    for place, values in enumerate(zip(*seen, strict=True)):
        if place in sizes and max(values) > 1:
            groups.setdefault(values, []).append(place)
    usual = [min((n for n in values if n > 1), default=values[0]) for values in zip(*seen, strict=True)]
    varied = sorted(groups, key=lambda values: len(set(values)) == 1)[:MOST_FREE]
    changing = [groups[values] for values in varied if len(set(values)) > 1]
    large = {place: LARGE + n for n, group in enumerate(changing) for place in group}
    for group in (groups[values] for values in varied):
        one = dict.fromkeys(group, 1)
        for changed in (one, large | one):
            yield tuple(changed.get(place, n) for place, n in enumerate(usual))
