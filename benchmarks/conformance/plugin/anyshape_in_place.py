"""A pytest plugin: `torch.compile` is anyshape's where ANYSHAPE_CONFORMANCE_MODE is "anyshape"; a line for each test.

Lines go to the file that ANYSHAPE_CONFORMANCE_LINES names: one when a test starts, so that a process that dies says
where, and one with its outcome. In the mode "lenient", comparisons of texts and of counts always hold: what passes
then and not in the mode "anyshape" is a candidate for the reviewed list.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from typing import Any

import pytest

MODE = os.environ.get("ANYSHAPE_CONFORMANCE_MODE", "stock")
LINES = os.environ.get("ANYSHAPE_CONFORMANCE_LINES")
_MOST_TEXT = 6000

_callers: list[
    Any
] = []  # who called what the test at hand compiled: not the callables, since tests look at what is freed
_notes: set[str] = set()  # arguments that anyshape does not take


def _is_inside() -> bool:
    """Whether what is called was called by anyshape, or by torch.compile on its behalf, and means stock."""
    frame = sys._getframe(2)
    name = str(frame.f_globals.get("__name__", ""))
    return name == "torch" or name.partition(".")[0] == "anyshape"


def _compiled(fn: Any, given: dict[str, Any]) -> Any:
    import anyshape

    made = anyshape.compile(fn, **given)
    engine = getattr(made, "_engine", None)
    if engine is not None:
        _callers.append(engine.callers)
    return made


def _install() -> None:
    import inspect

    import torch
    import torch._dynamo

    import anyshape

    stock_compile, stock_optimize = torch.compile, torch._dynamo.optimize
    taken = set(inspect.signature(anyshape.compile).parameters)

    @functools.wraps(stock_compile)
    def compile(model: Any = None, **given: Any) -> Any:
        if _is_inside():
            return stock_compile(model, **given)
        if given.get("shapes_spec") is not None:
            given["shapes"] = given["shapes_spec"]
        _notes.update(f"{k} left out" for k in given if k not in taken and k != "shapes_spec")
        known = {k: v for k, v in given.items() if k in taken}
        known["backend"] = _backend(known.get("backend"))
        return functools.partial(_compiled, given=known) if model is None else _compiled(model, known)

    def optimize(backend: Any = "inductor", **given: Any) -> Any:
        if _is_inside():
            return stock_optimize(backend, **given)
        known = {"backend": _backend(backend), "fullgraph": given.pop("nopython", False)}
        chosen = given.pop("guard_filter_fn", None)
        if chosen is not None:
            known["options"] = {"guard_filter_fn": chosen}
        for word in ("dynamic", "disable", "recompile_limit", "isolate_recompiles"):
            if given.get(word) is not None:
                known[word] = given.pop(word)
        _notes.update(f"optimize({word}=) left out" for word, value in given.items() if value is not None)
        return functools.partial(_compiled, given=known)

    def optimize_assert(backend: Any, **given: Any) -> Any:
        return optimize(backend, nopython=True, **given)

    torch.compile = compile  # type: ignore[assignment]
    torch._dynamo.optimize = optimize
    torch._dynamo.optimize_assert = optimize_assert


def _backend(given: Any) -> Any:
    """Inductor by its name, where a test hands over its function (`check_model` of test_torchinductor.py)."""
    code = getattr(given, "__code__", None)
    if getattr(given, "__name__", "") != "compile_fx_wrapper" or "called" not in code.co_freevars:
        return given
    given.__closure__[code.co_freevars.index("called")].cell_contents = True
    return "inductor"


def _install_lenience() -> None:
    from torch._dynamo import test_case
    from torch.testing._internal.common_utils import TestCase

    def holds(*_: Any, **__: Any) -> None:
        return None

    texts = ("assertExpectedInline", "assertExpectedInlineMunged", "assertExpectedJournal", "assertMultiLineEqual")
    orders = ("assertGreater", "assertGreaterEqual", "assertLess", "assertIn", "assertNotIn", "assertRegex")
    for name in (*texts, *orders):
        setattr(TestCase, name, holds)
    for cls in (TestCase, test_case.TestCase):
        if "assertExpectedInline" in vars(cls):
            cls.assertExpectedInline = holds  # type: ignore[method-assign]
        if "assertEqual" in vars(cls):
            cls.assertEqual = _lenient(cls.assertEqual)  # type: ignore[method-assign]


def _lenient(stock: Any) -> Any:
    def assertEqual(self: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        if type(x) in (int, str) and type(y) in (int, str):
            return None
        return stock(self, x, y, *args, **kwargs)

    return assertEqual


if MODE != "stock":
    _install()
if MODE == "lenient":
    _install_lenience()


def _write(**line: Any) -> None:
    if LINES:
        with open(LINES, "a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: Any) -> Any:
    _callers.clear()
    _notes.clear()
    _write(kind="start", id=item.nodeid, time=time.time())
    item._anyshape_reports = []
    yield
    outcome, text, seconds = "passed", "", 0.0
    for report in item._anyshape_reports:
        seconds += report.duration
        if report.outcome == "failed":
            outcome, text = "failed", text + str(report.longrepr)[-_MOST_TEXT:]
        elif report.outcome == "skipped" and outcome != "failed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
    eager: dict[str, int] = {}
    for callers in _callers:
        for reason, count in callers.fallbacks().items():
            eager[str(reason)[:600]] = eager.get(str(reason)[:600], 0) + count
    _write(
        kind="end", id=item.nodeid, outcome=outcome, seconds=round(seconds, 3), text=text, fallbacks=eager,
        compiled=len(_callers), notes=sorted(_notes),
    )  # fmt: skip
    _callers.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any) -> Any:
    out = yield
    if hasattr(item, "_anyshape_reports"):
        item._anyshape_reports.append(out.get_result())
