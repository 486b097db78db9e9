"""`anyshape.export`: one ExportedProgram for every size, and an assertion for everything that it assumes."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable
from typing import Any

import export_cases as cases
import pytest
import sympy
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import anyshape
from anyshape._torch.export import unbacked_program
from anyshape.declaration import size_conditions

# Where eager has a result and the program asserts that such sizes do not come: fused attention over nothing.
NOT_SERVED: dict[str, Callable[[int, int], bool]] = {
    "attention": lambda b, n: n == 0,
    "encoder": lambda b, n: n == 0,
}


def export(name: str) -> tuple[Any, Any, cases.Inputs]:
    make, inputs = cases.CASES[name]
    model = make()
    with torch.no_grad():
        return model, anyshape.export(model, inputs(*cases.SIZES[0]), shapes=cases.SHAPES.get(name)), inputs


def loaded(program: Any) -> Any:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def check(name: str, model: Any, call: Callable[..., Any], inputs: cases.Inputs) -> None:
    """Eager's result at every size, or an error where eager raises."""
    not_served = NOT_SERVED.get(name, lambda b, n: False)
    served = 0
    for sizes in cases.SIZES:
        with torch.no_grad():
            try:
                want = model(*inputs(*sizes))
            except Exception:
                want = None
            if want is None or not_served(*sizes):
                with pytest.raises(Exception):  # noqa: B017 - torch has many kinds
                    call(*inputs(*sizes))
                continue
            got = call(*inputs(*sizes))
        assert torch.utils._pytree.tree_structure(got) == torch.utils._pytree.tree_structure(want)
        for mine, theirs in zip(tree_leaves(got), tree_leaves(want), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4, equal_nan=True, msg=f"{name} at {sizes}")
        served += 1
    assert served >= 6


def free_sizes(program: Any) -> list[Any]:
    values = [n.meta["val"] for n in program.graph.find_nodes(op="placeholder")]
    return [s for v in values for s in v.shape if isinstance(s, torch.SymInt)]


@pytest.mark.parametrize("name", cases.CASES)
def test_right_at_every_size(name: str) -> None:
    model, program, inputs = export(name)
    assert isinstance(program, torch.export.ExportedProgram)
    assert len(free_sizes(program)) >= 2
    assert all(r.lower == 0 for r in program.range_constraints.values())
    check(name, model, program.module(), inputs)
    assert len(unbacked_program.asserted(program)) == len(program.graph_module.meta["anyshape_assertions"])
    again = loaded(program)
    assert unbacked_program.asserted(again) == unbacked_program.asserted(program)
    check(name, model, again.module(), inputs)


@pytest.mark.parametrize(
    "name",
    [
        n if n in ("matmul", "attention", "masked_mean") else pytest.param(n, marks=pytest.mark.slow)
        for n in cases.CASES
    ],
)
def test_right_when_decomposed(name: str) -> None:
    model, program, inputs = export(name)
    check(name, model, program.run_decompositions().module(), inputs)


@pytest.mark.parametrize("form", ["exported", "loaded", "decomposed"])
def test_every_assertion_fires(form: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (x @ y).gather(1, index)

    shapes = {"x": "n k", "index": "m p"}
    program = anyshape.export(
        f,
        (torch.ones(6, 4), torch.ones(4, 5), torch.zeros(2, 3, dtype=torch.long)),
        shapes=shapes,
        where=["n % 2 == 0", "p <= 100"],
    )
    assert len(unbacked_program.asserted(program)) == 5 or len(unbacked_program.asserted(program)) == 4
    forms = {"exported": lambda: program, "loaded": lambda: loaded(program), "decomposed": program.run_decompositions}
    call = forms[form]().module()
    ints = lambda *s: torch.zeros(*s, dtype=torch.long)
    assert call(torch.ones(8, 1), torch.ones(1, 7), ints(8, 9)).shape == (8, 9)
    for broken in (
        (torch.ones(6, 4), torch.ones(3, 5), ints(2, 3)),  # k
        (torch.ones(5, 4), torch.ones(4, 5), ints(2, 3)),  # n % 2
        (torch.ones(6, 4), torch.ones(4, 5), ints(2, 101)),  # p <= 100
        (torch.ones(6, 4), torch.ones(4, 5), ints(7, 3)),  # m <= n
    ):
        with pytest.raises(RuntimeError):
            call(*broken)


def test_an_assertion_says_what_and_where() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    program = anyshape.export(f, (torch.ones(3, 4), torch.ones(3, 4)))
    with pytest.raises(RuntimeError, match=r"x.shape\[0\] == y.shape\[0\] does not hold, and .*test_export.py:\d+"):
        program.module()(torch.ones(3, 4), torch.ones(2, 4))


def test_a_static_dim_is_static() -> None:
    program = anyshape.export(torch.nn.Linear(8, 4), (torch.ones(2, 8),))
    batch, width = program.graph.find_nodes(op="placeholder")[-1].meta["val"].shape
    assert isinstance(batch, torch.SymInt) and width == 8
    with pytest.raises(Exception, match="8"):
        program.module()(torch.ones(2, 7))


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 8:
        return x.relu()
    return x - 1


def test_a_branch_is_refused_and_shown() -> None:
    with pytest.raises(anyshape.ExportError) as caught:
        anyshape.export(branch, (torch.ones(4, 5),))
    text = str(caught.value)
    assert text.startswith("AS040: your code asks x.shape[0] <= 8, and one program cannot answer for all sizes")
    assert "test_export.py:" in text and "if x.shape[0] > 8:" in text
    assert 'shapes={"x": "n ..."}, where=["n <= 8"]' in text and 'behaviors="all"' in text


def test_an_invariant_settles_a_branch() -> None:
    program = anyshape.export(branch, (torch.ones(4, 5),), shapes={"x": "n ..."}, where=["n <= 8"])
    assert [a.split(" does")[0] for a in unbacked_program.asserted(program)] == ["anyshape: x.shape[0] <= 8"]
    with pytest.raises(RuntimeError):
        program.module()(torch.ones(9, 5))


def test_a_size_that_is_the_number_of_results_is_refused() -> None:
    with pytest.raises(anyshape.ExportError, match=r"the graph is another one for every x.shape\[0\]"):
        anyshape.export(lambda x: [y + 1 for y in x.unbind(0)], (torch.ones(4, 5),))


@pytest.mark.parametrize("form", ["made", "zip", "folder"])
def test_all_behaviors(form: str, tmp_path: pathlib.Path) -> None:
    package = anyshape.export(branch, (torch.ones(4, 5),), behaviors="all")
    assert sorted(b.text for b in package.behaviors) == ["x.shape[0] <= 8", "x.shape[0] > 8"]
    if form != "made":
        path = tmp_path / ("package.zip" if form == "zip" else "package")
        package.save(path)
        package = anyshape.ExportedBehaviors.load(path)
    for sizes in ((0, 3), (1, 1), (8, 0), (9, 2), (100, 7)):
        x = torch.randn(*sizes)
        torch.testing.assert_close(package(x), branch(x))
    assert all(isinstance(b.program, torch.export.ExportedProgram) for b in package.behaviors)


def test_a_real_squeeze_is_a_behavior() -> None:
    package = anyshape.export(lambda x: x.squeeze(0) * 2, (torch.ones(3, 4),), behaviors="all")
    assert [b.text for b in package.behaviors] == ["x.shape[0] != 1", "x.shape[0] == 1"]
    assert package(torch.ones(1, 4)).shape == (4,) and package(torch.ones(0, 4)).shape == (0, 4)


def test_a_call_that_no_program_serves() -> None:
    package = anyshape.export(lambda x, y: x @ y, (torch.ones(2, 3), torch.ones(3, 4)), behaviors="all")
    with pytest.raises(anyshape.ExportError, match="AS041"):
        package(torch.ones(2, 3), torch.ones(5, 4))


@pytest.mark.parametrize("damage", ["cut", "manifest", "operator", "name"])
def test_a_damaged_package_is_refused(damage: str, tmp_path: pathlib.Path) -> None:
    package = anyshape.export(lambda x: x * 2, (torch.ones(2),), behaviors="all")
    package.save(tmp_path)
    manifest = tmp_path / "manifest.json"
    text = manifest.read_text()
    if damage == "cut":
        manifest.write_text(text[: len(text) // 2])
    elif damage == "manifest":
        manifest.unlink()
    elif damage == "operator":
        manifest.write_text(text.replace('"conditions": []', '"conditions": [["import", 1]]'))
    else:
        manifest.write_text(text.replace("behavior0.pt2", "../behavior0.pt2"))
    with pytest.raises(anyshape.ExportError):
        anyshape.ExportedBehaviors.load(tmp_path)


def test_oblivious() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0) + 1

    program = anyshape.export(f, (torch.ones(3, 4),), semantics="oblivious")
    assert unbacked_program.asserted(program) == []
    assert program.module()(torch.ones(1, 4)).shape == (1, 4)  # a size is never 1 to it, on purpose


def test_the_example_may_be_of_size_1_or_0() -> None:
    for sizes in ((1, 1), (0, 3)):
        program = anyshape.export(torch.nn.Softmax(-1), (torch.ones(*sizes),))
        assert len(free_sizes(program)) == 2
        assert program.module()(torch.ones(5, 7)).shape == (5, 7)


def test_nothing_is_left_behind() -> None:
    x = torch.ones(3, 4)
    anyshape.export(torch.relu, (x,))
    assert not [name for name in vars(x) if name.startswith("_dynamo")]
    stock = torch.export.export(torch.nn.ReLU(), (x,))
    assert stock.graph.find_nodes(op="placeholder")[0].meta["val"].shape == (3, 4)


def test_arguments_of_every_kind() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(
            self, x: torch.Tensor, more: dict[str, list[torch.Tensor]], *, k: torch.Tensor, times: int = 2
        ) -> Any:
            return {"y": x * self.scale + more["a"][0], "k": k * times}

    model = Model()
    args = lambda n: (torch.ones(n, 2), {"a": [torch.ones(n, 2)]})
    program = anyshape.export(model, args(3), {"k": torch.ones(4), "times": 3})
    for n in (0, 1, 5):
        got, want = (f(*args(n), k=torch.ones(n), times=3) for f in (program.module(), model))
        torch.testing.assert_close(got, want)
    with pytest.raises(RuntimeError, match=r"more\['a'\]\[0\].shape\[0\]"):
        program.module()(torch.ones(3, 2), {"a": [torch.ones(2, 2)]}, k=torch.ones(4), times=3)


def test_a_condition_that_a_package_cannot_hold_is_refused_as_an_export() -> None:
    size = sympy.Symbol("size")
    with pytest.raises(anyshape.ExportError) as caught:
        size_conditions.from_sympy(sympy.sin(size) > 0, {size: (0, 0)})
    assert caught.value.code == "AS040"


def test_a_view_that_is_one_for_every_batch_is_not_asked_about() -> None:
    """Attention lays its result out by batch; whether the view after it is one need not be known."""

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = F.scaled_dot_product_attention(x, x, x).transpose(1, 2)
        y = y.reshape(*y.shape[:-2], -1).contiguous()
        return torch.addmm(weight[0], y.view(-1, y.size(-1)), weight).view(y.shape)

    weight = torch.randn(8, 8)
    where = ["batch >= 1", "length >= 2"]
    shapes = {"x": "batch 2 length 4", "weight": "8 8"}
    program = anyshape.export(fn, (torch.randn(2, 2, 5, 4), weight), shapes=shapes, where=where).module()
    for batch, length in ((2, 5), (1, 5), (3, 2), (1, 9)):
        x = torch.randn(batch, 2, length, 4)
        torch.testing.assert_close(program(x, weight), fn(x, weight))
