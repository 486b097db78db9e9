"""What is proposed: edits of the code at hand, variables, and tables for `anyshape.toml`."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from anyshape.doctor import edits, remedies
from anyshape.doctor.events import Compilation
from anyshape.doctor.findings import DISEASES, Finding, Remedy

PROGRAM = """\
import torch


@torch.compile(fullgraph=True, dynamic=True)
def f(x, w):
    return x @ w


print(f(torch.ones(2, 3).t(), w=torch.ones(2)))
"""
CALL = (9, 6, 9, 46)


@pytest.fixture
def frame(tmp_path: pathlib.Path) -> Compilation:
    path = tmp_path / "m.py"
    path.write_text(PROGRAM)
    return Compilation(
        "0/1", "f", str(path), 4, 0.0, 0.1, module="app.m", qualname="f", arguments={"x": "Tensor float32 [8, 4]"},
        parameters=("x", "w"), compile_file=str(path), compile_line=4, call_file=str(path), call_line=9, call_span=CALL,
    )  # fmt: skip


def finding(code: str, **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": code, "file": "m.py", "line": 2, "source_line": "", "function": "f", "argument": "x", "dim": 0,
        "values": (8, 9), "seconds": 0.1, "compiles": 1, "detail": "", "remedy": remedies.ADVICE,
    }  # fmt: skip
    return Finding(**(values | changes))


def propose(code: str, frame: Compilation, **changes: Any) -> list[Remedy]:
    found = finding(code, **changes)
    subjects = tuple(remedies.Subject(s.argument, s.dim, s.values, s.what, f"L['{s.argument}']") for s in found.about)
    return remedies.propose(finding(code, **changes, subjects=subjects), [frame])


@pytest.mark.parametrize("code", list(DISEASES))
def test_there_is_always_something_to_do(code: str, frame: Compilation) -> None:
    proposals = propose(code, frame)
    assert proposals[-1].kind == "advice" and all(p.text for p in proposals)
    assert sum(not p.applicable for p in proposals) == 1
    for said in (DISEASES[code].advice, proposals[-1].text):
        assert "anyshape" not in said, "it is advised only where it was tried"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("D101", "export TORCH_COMPILE_UNBACKED_SOURCES=\"L['x']:0\""),
        ("D102", "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x']:0\""),
        (
            "D103",
            "m.py line 4: replace `@torch.compile(fullgraph=True, dynamic=True)` by `@anyshape.compile(fullgraph=True)`; "
            "add `import anyshape` at the top",
        ),
        ("D105", "m.py line 9: replace `torch.ones(2, 3).t()` by `torch.ones(2, 3).t().contiguous()`"),
        ("D112", "m.py line 9: replace `torch.ones(2, 3).t()` by `torch.ones(2, 3).t()[...]`"),
        ("D110", "m.py after line 1: add `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"),
    ],
)
def test_the_first_remedy_is_an_edit_of_the_code_at_hand(code: str, text: str, frame: Compilation) -> None:
    first = propose(code, frame)[0]
    assert first.text == text
    changed = edits.apply(PROGRAM, first.edits)
    assert (changed != PROGRAM) == bool(first.edits)
    compile(changed, "m.py", "exec")
    for edit in first.edits:
        assert edit.new in changed


def test_the_table_names_the_dim_that_varies(frame: Compilation) -> None:
    declared = next(r for r in propose("D106", frame) if r.toml)
    assert declared.toml == '["app.m:f"]\ncompile = true\nshapes = { x = "x_0 _" }'
    assert "anyshape run" in declared.text


@pytest.mark.parametrize(
    ("qualname", "target"),
    [
        ("Model.forward", "app.m:Model.forward"),
        ("make.<locals>.inner", None),
        ("<lambda>", None),
    ],
)
def test_what_has_no_name_cannot_be_declared(qualname: str, target: str | None) -> None:
    frame = Compilation("0/1", qualname.rpartition(".")[2], "m.py", 1, 0.0, 0.1, module="app.m", qualname=qualname)
    tables = [r.toml for r in propose("D103", frame) if r.toml]
    assert [t.splitlines()[0] for t in tables] == ([f'["{target}"]'] if target else [])


def test_what_belongs_to_a_callable_is_declared_for_it() -> None:
    frame = Compilation(
        "1/0", "inner", "m.py", 1, 0.0, 0.1, module="lib", qualname="inner", root="step", root_module="train"
    )
    (table,) = [r.toml for r in propose("D103", frame) if r.toml]
    assert table == '["train:step"]\ncompile = true', "its arguments are not those of the call"


@pytest.mark.parametrize(
    ("written", "line", "becomes"),
    [
        ("g = torch.compile(f)", 1, "g = anyshape.compile(f)"),
        ("@torch.compile\ndef f(x): return x", 1, "@anyshape.compile\ndef f(x): return x"),
        ("@torch.compile(dynamic=True)\ndef f(x): return x", 1, "@anyshape.compile\ndef f(x): return x"),
        ("g = torch.compile(f, dynamic=None, mode='default')", 1, "g = anyshape.compile(f, mode='default')"),
        (
            "g = torch.compile(\n    f,  # ours\n    backend='eager')",
            2,
            "g = anyshape.compile(\n    f,  # ours\n    backend='eager')",
        ),
        ("é = 'é'; g = torch.compile(f)", 1, "é = 'é'; g = anyshape.compile(f)"),
        ("g = torch.compile(f, **options)", 1, None),
        ("g = torch.compile(f, new_option=1)", 1, None),
        ("g = compile(f)", 1, None),
        ("g = f\nh = torch.compile(f)", 1, None),
    ],
)
def test_torch_compile_becomes_anyshape_compile(
    written: str, line: int, becomes: str | None, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "m.py"
    path.write_text(written, encoding="utf-8")
    found = edits.with_anyshape(str(path), line)
    assert bool(found) == (becomes is not None)
    if becomes is not None:
        assert edits.apply(written, found) == f"import anyshape\n{becomes}"


@pytest.mark.parametrize("call", ["f(*args)", "f(**{'x': 1})", "f()", "print(1)"])
def test_an_argument_that_is_not_written_there_cannot_be_edited(call: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(call)
    assert edits.argument(str(path), (1, 0, 1, len(call)), 3, "x", "{}.contiguous()") == ()


def test_text_that_has_changed_meanwhile_is_not_edited() -> None:
    edit = edits.Edit("m.py", (1, 0, 1, 3), "one", "two")
    with pytest.raises(ValueError, match=r"m.py:1 is not `one` any more"):
        edits.apply("six", [edit])


def test_values_that_are_no_numbers_cannot_be_made_free(frame: Compilation) -> None:
    for values in (("sum", "mean"), (True, False)):
        (only,) = propose("D107", frame, values=values, dim=None)
        assert only.kind == "advice" and "tensor" not in only.text
    assert "as a tensor" in propose("D107", frame, values=(0.5, 1.5), dim=None)[-1].text


def test_anyshape_is_not_proposed_to_those_who_have_it(frame: Compilation) -> None:
    import dataclasses

    ours = dataclasses.replace(frame, by="anyshape")
    assert [r.kind for r in propose("D105", ours)] == ["contiguous", "advice"]
