"""Traces that somebody made to harm: values of every kind in every place, texts that take long to search, and names of
files that are not source. Reading them ends, in time, with a report or an `anyshape.Error`, and what is shown is text.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from anyshape.doctor import command, report, trace
from anyshape.errors import Error

HEAD = "V1119 20:31:26.826000 1234 torch/_logging/structured.py:22] "
SLOW = 10.0  # seconds of a processor, tens of times what any takes
METRICS: dict[str, Any] = {
    "start_time": 1.0, "compile_id": "0/0", "co_name": "f", "co_filename": "x.py", "co_firstlineno": 3,
    "entire_frame_compile_time_s": 1.0, "guard_count": 2, "fail_type": None, "fail_reason": None,
    "recompile_reason": None, "is_forward": True, "has_guarded_code": True, "duration_us": 1, "torch_version": "2",
    "python_version": "3",
}  # fmt: skip
FRAME = {"line": 3, "name": "f", "filename": "x.py"}
ODD: tuple[Any, ...] = (
    None, True, -1, 10**400, -(10**400), 1e308, float("inf"), float("nan"), "x", "", "\x1b[2J</script><script>",
    "\ud800", "\0", "9" * 5000, [], {}, [1], {"a": 1}, [[[]]], "/dev/zero", "/etc/passwd",
)  # fmt: skip


def line(fields: Any, payload: str | None = None) -> str:
    text = HEAD + (fields if isinstance(fields, str) else json.dumps(fields))
    return text + ("" if payload is None else "".join(f"\n\t{part}" for part in payload.split("\n")))


def metrics(**more: Any) -> str:
    return line({"compilation_metrics": {**METRICS, **more}, "frame_id": 0, "frame_compile_id": 0})


def start(*frames: Any) -> str:
    return line({"dynamo_start": {"stack": frames}, "frame_id": 0, "frame_compile_id": 0})


def reasons(*texts: Any) -> str:
    name = {"artifact": {"name": "recompile_reasons"}, "frame_id": 0, "frame_compile_id": 1}
    return line(name, json.dumps(texts)) + "\n" + metrics(compile_id="0/1")


def graph_break(text: str) -> str:
    return line({"artifact": {"name": "dynamo_graph_break_reason"}, "frame_id": 0}, text)


def pin(**more: Any) -> str:
    said = {"user_stack": [{"filename": "a.py", "line": 1, "loc": "x"}], "sources": ["L['x'].size()[0]"], **more}
    return line({"symbolic_shape_specialization": said, "frame_id": 0})


WHOLE = [start(FRAME), metrics()]
AGAIN = metrics(compile_id="0/1", recompile_reason="0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4")


def odd(value: Any) -> Iterator[list[str]]:
    """A trace for each place that a value could be in."""
    for name in METRICS:
        yield [start(FRAME), metrics(**{name: value}), AGAIN]
    for name in FRAME:
        yield [start(*[{**FRAME, name: value}] * 2), line({"compilation_metrics": {"compile_id": "0/0"}})]
        yield [pin(user_stack=[{**FRAME, name: value}]), *WHOLE]
    for name in ("str", "artifact", "symbolic_shape_specialization", "compilation_metrics", "dynamo_start"):
        yield [line({name: value, "frame_id": value, "frame_compile_id": value}), *WHOLE]
    yield [line({"str": ["a", value]}), line({"str": [value, 1]}), start(value, value), *WHOLE]
    yield [pin(sources=value), pin(user_stack=value), *WHOLE, AGAIN]
    yield [*WHOLE, reasons(value, [value], f"0/0: L['x'] == {value}")]
    for what in ("size", "dtype", "rank"):
        yield [*WHOLE, reasons(f"0/0: tensor 'L['{value}']' {what} mismatch at index 0. expected {value}, actual 1")]
    yield [*WHOLE, graph_break(f"Graph break in user code at {value}:{value}\nGraph Break Reason: {value}")]
    yield [*WHOLE, graph_break(f"Graph break in user code at x.py:3\nGraph Break Reason: {value}")]


def shown(folder: pathlib.Path, lines: list[str]) -> str:
    """What is printed for a trace. Both files are written too."""
    folder.mkdir(exist_ok=True)
    (folder / "trace.log").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    said, began = io.StringIO(), time.process_time()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            report = trace.read(folder)
            report.print()
            report.write_json(folder.parent / "report.json")
        except Error as error:
            print(error)
    assert time.process_time() - began < SLOW
    text = said.getvalue()
    text.encode()
    assert all(c.isprintable() or c in "\n\t" for c in text), "a terminal would obey"
    return text


@pytest.mark.parametrize("number", range(len(ODD)))
def test_values_of_every_kind_in_every_place(tmp_path: pathlib.Path, number: int) -> None:
    for lines in odd(ODD[number]):
        shown(tmp_path / "trace", lines)


@pytest.mark.parametrize("depth", [900, 985, 995, 5000, 100_000])
def test_values_that_are_deep(tmp_path: pathlib.Path, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    shown(tmp_path / "trace", [line(f'{{"a":{deep}}}'), *WHOLE])
    shown(tmp_path / "trace", [start(FRAME), line(f'{{"compilation_metrics":{{"co_name":{deep}}}}}'), *WHOLE])
    shown(tmp_path / "trace", [*WHOLE, reasons(f"0/0: L['x'] == {deep}", "0/0: L['x'] == " + "-" * depth + "1")])


@pytest.mark.parametrize("text", ["</script><script>alert(1)", "\ud800"])
def test_the_page_shows_text_of_others_as_text(tmp_path: pathlib.Path, text: str) -> None:
    pytest.importorskip("jinja2")
    lines = [
        start({"line": 3, "name": text, "filename": text}),
        metrics(co_name=text, co_filename=text, fail_type=text),
    ]
    folder, page = tmp_path / "trace", tmp_path / "page.html"
    folder.mkdir()
    (folder / "trace.log").write_text("\n".join([*lines, reasons(f"0/0: L['{text}'] == 1")]))
    command.examine(None, trace_folder=folder, html_file=page)
    assert "<script>alert" not in page.read_text(encoding="utf-8")


# Each matches in many ways, or from many places, what is searched for.
LONG = (
    "Graph break in user code at ", ":1 ", "(HINT: ", "(a.py:1 in ", "# a:1 in ", "a:1", "check_tensor(", "a, ", "L[",
    "L[x].size(", "tensor '", "tensor 'x' size mismatch", " actual ", "expected type of '", " to be ", " == ", "len(",
    "___check_obj_id(", "x, 1", " is L[", "L[x]", "_dynamo_x_indices", ") and ", 'guard on "', "\n", " ", "9", '"', "'",
    'File "a", line 1, in x\n', 'File "', "\nUser stack trace:\n", ".x", ", L[",
)  # fmt: skip
FIRST = (
    "", "L[", "#", "tensor 'x' size mismatch. expected ", "expected type of 'x' to be ", "check_tensor(",
    "Graph break in user code at x:1", "x\nUser stack trace:\n",
)  # fmt: skip


@pytest.mark.parametrize("first", FIRST)
def test_texts_that_take_long_to_search(tmp_path: pathlib.Path, first: str) -> None:
    for part in LONG:
        text = first + part * (300_000 // len(part))
        shown(tmp_path / "trace", [pin(sources=[text]), *WHOLE, reasons(f"0/0: {text}"), graph_break(text)])


def test_the_time_is_linear_in_the_number_of_entries(tmp_path: pathlib.Path) -> None:
    def seconds(count: int) -> float:
        lines = [line({"str": [f"/a/b{i}.py", i]}) for i in range(count)]
        for i in range(1, count):
            why = f"0/{i - 1}: L['x'].size()[0] == 3  # x  # b{i}.py:3 in f"
            lines.append(metrics(compile_id=f"0/{i}", recompile_reason=why))
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "trace.log").write_text("\n".join(lines))
        began = time.process_time()
        trace.read(folder)
        return time.process_time() - began

    seconds(100)
    assert seconds(2000) < 3 * 4 * seconds(500) + 0.5


def test_no_more_is_read_than_anybody_looks_at(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST_ENTRIES", 5)
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "trace.log").write_text("\n".join(metrics(compile_id=f"{i}/0") for i in range(9)))
    read = trace.read(folder)
    assert len(read.compilations) == 5 and any("after 5 compilations, not read" in p for p in read.problems)


def test_only_source_is_quoted(tmp_path: pathlib.Path) -> None:
    """A trace may name a file that is not meant for those who get the report."""
    for name in ("id_rsa", "x.txt", ".env", "x.pyc", "x.py"):
        (tmp_path / name).write_text("secret\n")
        assert bool(report.excerpt(str(tmp_path / name), 1)) is (name == "x.py")
