"""`anyshape demo`: anyshape beside stock torch, over sizes that include 0 and 1.

Owns the cases, the run and the table. Every figure it shows is measured in the run that shows it; a call counts as
equal only if values, shapes, strides, dtypes, mutation, aliasing and exception types are eager's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from anyshape import compiler, testing
from anyshape._torch.comparison import stock

if TYPE_CHECKING:
    import rich.table

OURS = "anyshape"
WAYS = (*(f"stock {mode}" for mode in stock.MODES), OURS)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, and the calls that are made of it in turn."""

    name: str
    make: Callable[[], Callable[..., Any]]
    inputs: Callable[..., tuple[Any, ...]]
    free: tuple[tuple[int, ...], ...]  # the dims that vary, for each argument
    sizes: tuple[tuple[int, ...], ...]
    behaviours: int  # the distinct ways it acts on the sizes above


@dataclasses.dataclass(frozen=True)
class Row:
    """One case compiled one way."""

    case: str
    way: str
    programs: int
    continuations: int  # programs that begin after a graph break; what lies between runs eagerly
    seconds: float
    calls: int
    wrong: tuple[str, ...]  # a text for each call that was not eager's

    @property
    def equal(self) -> bool:
        return not self.wrong

    @property
    def verdict(self) -> str:
        return "yes" if self.equal else f"no ({len(self.wrong)} of {self.calls})"


# -- the cases -------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Mlp(nn.Module):
    """An MLP with ReLU that treats large batches another way."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        if x.shape[0] > 8:
            y = y - y.mean(0)
        return y


def _module(kind: type[nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return kind().eval().requires_grad_(False)

    return make


CASES = (
    Case(
        "transformer block",
        _module(Block),
        lambda b, n: (torch.randn(b, n, 32),),
        ((0, 1),),
        ((2, 16), (3, 24), (1, 16), (1, 1), (5, 7), (2, 0), (0, 4)),
        behaviours=2,  # attention over nothing takes another kernel, in eager too
    ),
    Case(
        "MLP, if n > 8",
        _module(Mlp),
        lambda n: (torch.randn(n, 16),),
        ((0,),),
        ((5,), (12,), (1,), (0,), (9,), (33,), (7,)),
        2,
    ),
    Case(
        "topk(x, k)",
        lambda: lambda x, k: torch.topk(x, k),
        lambda n, k: (torch.randperm(n).float(), k),
        ((0,), ()),
        ((9, 3), (12, 5), (7, 1), (1, 1), (5, 0), (0, 0), (20, 20)),
        behaviours=1,
    ),
    Case(
        "squeeze",
        lambda: lambda x: x.squeeze() * 2,
        lambda n: (torch.randn(n, 20, 1),),
        ((0,),),
        ((5,), (7,), (1,), (0,), (3,), (11,)),
        behaviours=2,
    ),
    Case(
        "broadcast",
        lambda: lambda x, y: x + y,
        lambda n, m: (torch.randn(n, 4), torch.randn(m, 4)),
        ((0,), (0,)),
        ((5, 5), (7, 7), (5, 1), (1, 5), (9, 1), (1, 1), (0, 0), (0, 1)),
        behaviours=3,
    ),
)


# -- the run ---------------------------------------------------------------------------------------------------


def run_case(case: Case, way: str, *, backend: str) -> Row:
    """Compile a case one way, make all its calls, and compare each with eager."""
    fn = case.make()
    compiled: Any
    if way == OURS:
        compiled = compiler.compile(fn, backend=backend)
    else:
        compiled = stock.compile(fn, mode=way.removeprefix("stock "), backend=backend, free=case.free)
    wrong: list[str] = []
    seconds = 0.0

    def timed(*args: Any) -> Any:
        nonlocal seconds
        began = time.perf_counter()
        try:
            return compiled(*args)
        finally:
            seconds += time.perf_counter() - began

    with stock.afresh():
        for size in case.sizes:
            torch.manual_seed(0)
            text = testing.difference(fn, timed, case.inputs(*size))
            if text is not None:
                wrong.append(f"{size}: {text}")
        if way == OURS:
            programs = len(compiled.programs)
            continuations = sum(stock.is_continuation(p.name) for p in compiled.programs)
        else:
            programs, continuations = compiled.programs, compiled.continuations
    return Row(case.name, way, programs, continuations, seconds, len(case.sizes), tuple(wrong))


def warm_up(backend: str) -> None:
    """What a backend does once in a process is not the cost of the case that comes first."""
    with stock.afresh():
        for way in (
            stock.compile(torch.sin, mode="auto", backend=backend),
            compiler.compile(torch.cos, backend=backend),
        ):
            way(torch.ones(3))


def usable_backend(backend: str) -> tuple[str, str | None]:
    """The backend to use, and a word to the user if it is not the one asked for."""
    compilers = [os.environ.get("CXX", ""), "g++", "clang++", "cl"]
    if backend == "inductor" and not any(shutil.which(name) for name in compilers if name):
        return "aot_eager", "no C++ compiler was found; inductor needs one on a CPU, so the backend is aot_eager"
    return backend, None


def run(*, backend: str = "inductor", cases: Sequence[Case] = CASES, ways: Sequence[str] = WAYS) -> list[Row]:
    """Run every case every way, showing progress and then the table."""
    backend, note = usable_backend(backend)
    if note:
        print(note)
    print(f"torch {torch.__version__}, backend {backend}; each case is called with {_sizes(cases)}\n")
    rows: list[Row] = []
    with stock.measuring(), _progress(len(cases) * len(ways) + 1) as step:
        step("starting")
        warm_up(backend)
        for case in cases:
            for way in ways:
                step(f"{case.name}: {way}")
                rows.append(run_case(case, way, backend=backend))
    show(rows, cases)
    print(f"\n{summary(rows)}")
    return rows


def _sizes(cases: Sequence[Case]) -> str:
    few, many = min(len(c.sizes) for c in cases), max(len(c.sizes) for c in cases)
    return f"{few} to {many} sizes, including 0 and 1" if few != many else f"{few} sizes"


# -- the table -------------------------------------------------------------------------------------------------

_WIDTH = 110  # of the table; a pipe has no width of its own
_HEADINGS = ("case", "behaviors", "compiled by", "programs", "after a break", "seconds", "equal to eager")


def _cells(rows: Sequence[Row], cases: Sequence[Case]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    behaviours = {case.name: case.behaviours for case in cases}
    shown = None
    for row in rows:
        first = row.case != shown
        shown = row.case
        head = (row.case, str(behaviours[row.case])) if first else ("", "")
        yield row, (*head, row.way, str(row.programs), str(row.continuations), f"{row.seconds:.1f}", row.verdict)


def show(rows: Sequence[Row], cases: Sequence[Case] = CASES) -> None:
    """The table, in color where rich is installed, and what was wrong under it."""
    try:
        from rich.console import Console
    except ImportError:
        widths = (18, 11, 20, 9, 14, 8, 0)
        for cells in [_HEADINGS, *(c for _, c in _cells(rows, cases))]:
            print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())
    else:
        console = Console()
        console.width = max(console.width, _WIDTH)
        console.print(table(rows, cases))
    for row in rows:
        if row.wrong:
            print(f"{row.case}, {row.way}: at {' '.join(row.wrong[0].split())[:160]}")


def table(rows: Sequence[Row], cases: Sequence[Case] = CASES) -> rich.table.Table:
    """The table for a terminal with colors."""
    from rich.table import Table

    made = Table(title="anyshape and stock torch.compile, called with the same sizes", title_justify="left")
    for heading in _HEADINGS:
        numbers = heading in ("behaviors", "programs", "after a break", "seconds")
        made.add_column(heading, justify="right" if numbers else "left", no_wrap=not numbers)
    for row, cells in _cells(rows, cases):
        if cells[0] and made.row_count:
            made.add_section()
        made.add_row(*cells, style="bold" if row.way == OURS else ("" if row.equal else "red"))
    return made


def summary(rows: Sequence[Row]) -> str:
    """The totals in one sentence, stock's beside anyshape's."""
    parts: list[str] = []
    for way in (OURS, *(w for w in WAYS if w != OURS)):
        own = [row for row in rows if row.way == way]
        if own:
            programs, seconds = sum(r.programs for r in own), sum(r.seconds for r in own)
            calls, wrong = sum(r.calls for r in own), sum(len(r.wrong) for r in own)
            equal = f"{wrong} of {calls} results differ from eager's" if wrong else f"all {calls} results equal eager's"
            parts.append(f"{way} compiled {programs} programs in {seconds:.0f} s and {equal}")
    return "; ".join(parts) + "."


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function that is called with what begins now. Without a terminal, or rich, each step is a line."""
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        plain = True
    else:
        plain = not sys.stdout.isatty()
    if plain:
        begun_at = time.perf_counter()
        yield lambda text: print(f"... {time.perf_counter() - begun_at:4.0f} s  {text}", flush=True)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=total)
        begun = 0

        def step(text: str) -> None:
            nonlocal begun
            progress.update(task, description=f"{text:<42}", completed=begun)
            begun += 1

        yield step
