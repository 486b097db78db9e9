"""Buckets of sizes: ranges and divisors that a size never seen falls into.

Owns how the sizes of a key are told apart (powers of two of what is reduced, multiples of 16, one row, few or many),
as code that takes less than a microsecond; what is known of all sizes of a bucket; what a bucket is called; which
buckets lie beside it. When a bucket gets code is `hot_buckets`' to say. Knows nothing of torch.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

Key = tuple[Any, ...]
Bucket = tuple[int, ...]  # for each axis the number of its range, and whether the size is a multiple of `DIVISOR`

DIVISOR: Final = 16  # what vectorized loads and stores need
REDUCED, CONTIGUOUS, ROWS, NUMBER, STRIDE = "reduced", "contiguous", "rows", "number", "stride"
COLUMNS = "columns"  # contiguous in memory, and what is reduced lies across
_LEAST: Final = {REDUCED: 2, CONTIGUOUS: 2, COLUMNS: 2, ROWS: 1, NUMBER: 0, STRIDE: 2}  # below is for general code
_ENDS: Final[Mapping[str, tuple[int, ...]]] = {
    REDUCED: tuple(1 << i for i in range(5, 18)),  # 32 and less are one range, and so is what is beyond 131,072
    CONTIGUOUS: (64,),
    COLUMNS: (64, 256, 1024, 4096, 16384),
    ROWS: (1, 64),
    NUMBER: (0, 1),
    STRIDE: (),
}
_DIVIDED: Final = (REDUCED, CONTIGUOUS, COLUMNS, STRIDE)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the values of one size have in common."""

    least: int
    most: int | None
    divisor: int = 1
    is_multiple: bool | None = None  # None where nobody asked

    @property
    def value(self) -> int | None:
        """The one value, where there is one."""
        return self.least if self.least == self.most else None

    def text(self, name: str) -> str:
        if self.value is not None:
            return f"{name} == {self.value}"
        if self.most is None:
            bounds = f"{name} > {self.least - 1}"
        elif self.least <= 2:
            bounds = f"{self.least} <= {name} <= {self.most}"
        else:
            bounds = f"{self.least - 1} < {name} <= {self.most}"
        return bounds if self.is_multiple is None else f"{bounds}, {self.of_divisor(name)}"

    def of_divisor(self, name: str) -> str:
        return f"{name} % {DIVISOR} {'==' if self.is_multiple else '!='} 0"


@dataclasses.dataclass(frozen=True)
class Axis:
    """A size, or a number, that code may depend on."""

    name: str  # x.shape[1]
    place: int  # where it stands in a key
    role: str

    @property
    def ends(self) -> tuple[int, ...]:
        return _ENDS[self.role]

    def text(self, facts: Facts) -> str:
        """In words."""
        return facts.text(self.name) if self.role != STRIDE else facts.of_divisor(self.name)

    def facts(self, index: int, is_multiple: int) -> Facts:
        least = _LEAST[self.role] if index == 0 else self.ends[index - 1] + 1
        most = self.ends[index] if index < len(self.ends) else None
        if self.role not in _DIVIDED:
            return Facts(least, most)
        return Facts(least, most, DIVISOR if is_multiple else 1, bool(is_multiple))


class Plan:
    """The buckets of a program."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.axes = tuple(axes)
        self.choose = choice(self.axes)

    def facts(self, bucket: Bucket) -> tuple[Facts, ...]:
        """For each axis."""
        return tuple(axis.facts(*bucket[2 * i : 2 * i + 2]) for i, axis in enumerate(self.axes))

    def text(self, bucket: Bucket) -> str:
        """In words: `512 < x.shape[1] <= 1024, x.shape[1] % 16 == 0`."""
        return " and ".join(axis.text(facts) for axis, facts in zip(self.axes, self.facts(bucket), strict=True))

    def work(self, key: Key) -> int:
        """How much there is to compute, about."""
        found = 1
        for axis in self.axes:
            if axis.role not in (NUMBER, STRIDE):
                found *= max(1, key[axis.place])
        return found

    def neighbors(self, bucket: Bucket, key: Key) -> Iterator[tuple[Bucket, dict[int, int]]]:
        """Buckets one range away, and what would be where in a key of theirs."""
        for i, axis in enumerate(self.axes):
            if axis.role not in (REDUCED, COLUMNS):
                continue
            for step in (1, -1):
                index = bucket[2 * i] + step
                if not 0 <= index <= len(axis.ends):
                    continue
                near = (*bucket[: 2 * i], index, *bucket[2 * i + 1 :])
                size = _inside(self.facts(near)[i])
                yield near, {axis.place: size}


def _inside(facts: Facts) -> int:
    """A size that the facts hold for, at three quarters of the range."""
    most = facts.most if facts.most is not None else 2 * facts.least
    size = most * 3 // 4
    size -= size % DIVISOR
    if facts.is_multiple is False:
        size += 9
    return size


def choice(axes: Sequence[Axis]) -> Callable[[Key], Bucket | None]:
    """A function from a key to its bucket; None for sizes that general code is for."""
    lines, parts, least = [], [], []
    scope: dict[str, Any] = {"index": bisect.bisect_left}
    for i, axis in enumerate(axes):
        lines.append(f"    n{i} = v[{axis.place}]")
        least.append(f"n{i} < {_LEAST[axis.role]}")
        scope[f"ends{i}"] = axis.ends
        parts += [f"index(ends{i}, n{i})" if axis.ends else "0"]
        parts += [f"n{i} % {DIVISOR} == 0" if axis.role in _DIVIDED else "0"]
    body = [
        *lines,
        f"    if {' or '.join(least) or False}:",
        "        return None",
        f"    return ({', '.join(parts)},)",
    ]
    exec("def choose(v):\n" + "\n".join(body), scope)
    return scope["choose"]  # type: ignore[no-any-return]
