"""What Inductor makes of known ranges: which products of sizes fit into 32 bits, and who sees it changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sympy
from torch._dynamo.source import ConstantSource
from torch._inductor.choices import InductorChoices
from torch._inductor.runtime.hints import ReductionHint
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod

from anyshape._torch.compile import compile_scope
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.inductor import known_ranges


class Graph:
    def __init__(self, env: ShapeEnv) -> None:
        self.sizevars = SizeVarAllocator(env)


class Features:
    """A reduction, as Inductor asks about it."""

    def __init__(self, length: Any, hint: Any) -> None:
        self.reduction_numel = self.numel = length
        self._hint = hint

    def get_reduction_hint(self) -> Any:
        return self._hint

    def strict_reduction_rblock(self) -> None:
        return None


def symbol(env: ShapeEnv, least: int, most: int) -> Any:
    found = env.create_symbol(most, ConstantSource(f"n{most}"), DimDynamic.DYNAMIC)
    env.constrain_symbol_range(found, least, most)
    return found


ENV = ShapeEnv(duck_shape=False)
ROW, WIDE, FREE = (
    symbol(ENV, 257, 512),
    symbol(ENV, 2049, 65536),
    ENV.create_symbol(7, ConstantSource("n"), DimDynamic.DYNAMIC),
)
AT = sympy.Symbol("x0", integer=True)  # counts elements


@pytest.mark.parametrize(
    ("expr", "fits"),
    [
        (ROW * AT + AT, True),
        (AT % ROW, True),
        (ROW * WIDE * AT, True),
        (ROW * WIDE * 63, True),
        (ROW * WIDE * 64, False),
        (ROW * WIDE * WIDE + AT, False),
        (FloorDiv(ROW * WIDE * WIDE, 4096), False),  # what is divided does not fit
        (Mod(AT, ROW * WIDE) + ROW, True),
        (FREE * AT, False),
        (sympy.Integer(2**40), True),  # no size: printed as it is
        (1 / ROW, False),
    ],
)
def test_products_of_sizes_that_fit_into_32_bits(expr: Any, fits: bool) -> None:
    assert known_ranges._fits(expr, ENV.var_to_range) is fits


@pytest.mark.parametrize(
    ("most", "hint", "noted", "kept"),
    [
        (1024, ReductionHint.INNER, [], True),
        (8192, ReductionHint.INNER, [], True),
        (8193, ReductionHint.INNER, [], False),
        (8192, ReductionHint.OUTER, [], False),
        (8192, ReductionHint.INNER, None, False),  # code with other kernels is wanted
    ],
)
def test_rows_of_bounded_length_are_kept(most: int, hint: Any, noted: list[Any] | None, kept: bool) -> None:
    env = ShapeEnv(duck_shape=False)
    row = symbol(env, 2, most)
    with registry.entered("known ranges", noted=noted), V.set_graph_handler(Graph(env)):
        assert InductorChoices.should_use_persistent_reduction(Features(row, hint), False) is kept
    if noted is not None:
        assert bool(noted) is (kept and most > 1024)  # up to 1,024 they are kept by stock


def test_other_threads_choose_as_before_and_so_does_this_one_afterwards() -> None:
    env = ShapeEnv(duck_shape=False)
    features = Features(symbol(env, 2, 4096), ReductionHint.INNER)
    chosen: list[bool] = []

    def choose() -> None:
        with V.set_graph_handler(Graph(env)):
            chosen.append(InductorChoices.should_use_persistent_reduction(features, False))

    with registry.entered("known ranges", noted=[]):
        choose()
        other = threading.Thread(target=choose)
        other.start()
        other.join()
    choose()
    assert chosen == [True, False, False]


def test_a_divisor_that_was_learnt_is_known_to_inductor() -> None:
    env = ShapeEnv(duck_shape=False)
    size = env.create_symbol(32, ConstantSource("n"), DimDynamic.DYNAMIC)
    assert env.create_symintnode(size, hint=32) % 16 == 0
    with compile_scope.scope():
        known = SizeVarAllocator(env)
        assert known.statically_known_multiple_of(size, 16)
        assert known.statically_known_multiple_of(3 * size, 16)
        assert not known.statically_known_multiple_of(size + 1, 16)
