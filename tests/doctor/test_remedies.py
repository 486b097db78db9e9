"""What is proposed: the text to paste, and the table for `anyshape.toml`."""

from __future__ import annotations

from typing import Any

import pytest

from anyshape.doctor import remedies
from anyshape.doctor.events import Compilation
from anyshape.doctor.findings import DISEASES, Finding, Remedy

FRAME = Compilation(
    "0/1", "f", "m.py", 1, 0.0, 0.1, module="app.m", qualname="f", arguments={"x": "Tensor float32 [8, 4]"}
)


def finding(code: str, **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": code, "file": "m.py", "line": 2, "source_line": "", "function": "f", "argument": "x", "dim": 0,
        "values": (8, 9), "seconds": 0.1, "compiles": 1, "detail": "", "remedy": remedies.ADVICE,
    }  # fmt: skip
    return Finding(**(values | changes))


def propose(code: str, source: str = "L['x']", frame: Compilation = FRAME, **changes: Any) -> list[Remedy]:
    return remedies.propose(finding(code, **changes), source, frame)


@pytest.mark.parametrize("code", list(DISEASES))
def test_there_is_always_something_to_do(code: str) -> None:
    proposals = propose(code)
    assert proposals[-1].kind == "advice" and all(p.text for p in proposals)
    assert sum(not p.applicable for p in proposals) == 1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("D101", "export TORCH_COMPILE_UNBACKED_SOURCES=\"L['x']:0\""),
        ("D102", "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x']:0\""),
        ("D103", "f = anyshape.compile(f)"),
        ("D105", "x = x.contiguous()"),
        ("D112", "x = x.view_as(x)"),
        ("D110", "torch._dynamo.config.allow_unspec_int_on_nn_module = True"),
    ],
)
def test_the_first_remedy_can_be_pasted(code: str, text: str) -> None:
    assert propose(code)[0].text == text


def test_the_table_names_the_dim_that_varies() -> None:
    assert propose("D106")[0].toml == '["app.m:f"]\ncompile = true\nshapes = { x = "x_0 _" }'


@pytest.mark.parametrize(
    ("qualname", "name", "target"),
    [
        ("Model.forward", "model", "app.m:Model.forward"),
        ("make.<locals>.inner", "inner", "app.m:inner"),
        ("<lambda>", "f", "app.m:f"),
        ("torch_dynamo_resume_in_g_at_7", "g", "app.m:g"),
    ],
)
def test_what_is_compiled_is_named(qualname: str, name: str, target: str) -> None:
    frame = Compilation("0/1", qualname.rpartition(".")[2], "m.py", 1, 0.0, 0.1, module="app.m", qualname=qualname)
    remedy = propose("D103", frame=frame)[0]
    assert remedy.text == f"{name} = anyshape.compile({name})"
    assert remedy.toml.startswith(f'["{target}"]')


def test_values_that_are_no_ints_cannot_be_made_free() -> None:
    assert [r.kind for r in propose("D107", values=("sum", "mean"), dim=None)] == ["advice"]
    assert [r.kind for r in propose("D107", values=(True, False), dim=None)] == ["advice"]


def test_the_limit_has_the_remedy_of_its_cause() -> None:
    kinds = [r.kind for r in propose("D130", detail="the cause is D102: 8 before, 9 now")]
    assert kinds == ["environment", "anyshape", "advice"]
    assert [r.kind for r in propose("D130", detail="nothing known")] == ["advice"]


def test_anyshape_is_not_proposed_to_those_who_have_it() -> None:
    ours = Compilation("0/1", "f", "m.py", 1, 0.0, 0.1, by="anyshape")
    assert [r.kind for r in propose("D105", frame=ours)] == ["contiguous", "advice"]
