"""`torch.compile(model, backend="anyshape")`, and the libraries that are given the name."""

from __future__ import annotations

import enum
import importlib
import importlib.metadata
import pathlib
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

import anyshape
from anyshape import library_names

ENTRY = 'anyshape = "anyshape.named_backend:anyshape"'
QUICK = {"backend": "aot_eager"}


@pytest.fixture(autouse=True)
def _named() -> None:
    """As an installed package is: by its entry point. A checkout may have been installed before there was one."""
    from torch._dynamo.backends import registry

    if "anyshape" not in registry.list_backends():
        registry._BACKENDS["anyshape"] = importlib.metadata.EntryPoint(
            "anyshape", "anyshape.named_backend:anyshape", "torch_dynamo_backends"
        )


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def test_the_package_says_its_name() -> None:
    project = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f"[project.entry-points.torch_dynamo_backends]\n{ENTRY}\n" in project


def test_sizes_0_and_1_make_no_program() -> None:
    fn = lambda x: x.sin() * 2
    f: Any = torch.compile(fn, backend="anyshape", options=dict(QUICK))
    for n in (3, 1, 0, 7):
        x = torch.randn(n, 4)
        assert torch.equal(f(x), fn(x))
    assert isinstance(f, anyshape.CompiledFunction)
    assert len(f.programs) == 1 and not f.fallbacks


def test_a_module_and_its_own_compile() -> None:
    model = net()  # of torch's own modules throughout
    f: Any = torch.compile(model, backend="anyshape", options=dict(QUICK))
    in_place = net()
    in_place.compile(backend="anyshape", options=dict(QUICK))
    for n in (3, 1, 0):
        x = torch.randn(n, 4)
        assert torch.equal(f(x), model(x))
        in_place(x)
    assert isinstance(f, torch._dynamo.OptimizedModule) and len(f.programs) == 1
    assert isinstance(in_place._compiled_call_impl, anyshape.CompiledFunction)
    assert len(in_place._compiled_call_impl.programs) == 1


def test_arguments_of_torch_compile_mean_what_they_do() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    @torch.compile(backend="anyshape", fullgraph=True, options=dict(QUICK))
    def whole(x: torch.Tensor) -> torch.Tensor:
        return breaks(x)

    with pytest.raises(torch._dynamo.exc.Unsupported):
        whole(torch.ones(2))
    static: Any = torch.compile(lambda x: x + 1, backend="anyshape", dynamic=False, options=dict(QUICK))
    for n in (3, 4, 5):
        static(torch.ones(n))
    assert len(static.programs) == 3
    off = torch.compile(breaks, backend="anyshape", disable=True)
    assert torch.equal(off(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(anyshape.Error, match="on_branch"):
        torch.compile(breaks, backend="anyshape", options={"on_branch": "perhaps"})


def test_a_declaration_comes_among_the_options() -> None:
    options = QUICK | {"shapes": {"x": "batch 4"}, "where": ["batch <= 8"]}
    f: Any = torch.compile(lambda x: x + 1, backend="anyshape", options=options)
    f(torch.ones(8, 4))
    with pytest.raises(anyshape.InvariantError):
        f(torch.ones(9, 4))


def test_other_backends_are_torchs() -> None:
    torch.compile(net(), backend="anyshape")
    for backend in ("aot_eager", "eager", lambda graph, inputs: graph):
        assert not hasattr(torch.compile(net(), backend=backend), "programs")


def test_the_default_backend_of_the_process() -> None:
    from torch._dynamo.backends import registry

    if not hasattr(registry, "set_default_backend"):
        pytest.skip("this torch has no default backend to set")
    registry.set_default_backend("anyshape")
    try:
        assert hasattr(torch.compile(net()), "programs")
        assert hasattr(anyshape.compile(net()), "programs")
    finally:
        registry.set_default_backend(None)


def test_a_graph_that_is_captured_already_is_refused() -> None:
    from anyshape import named_backend

    with pytest.raises(anyshape.NotCompilableError, match="captures calls itself"):
        named_backend.anyshape(torch.fx.symbolic_trace(net()), [torch.ones(2, 4)])


# -- libraries that keep a list ----------------------------------------------------------------------------------


def test_the_name_gets_on_a_list_that_is_imported_later(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    """A package with accelerate's enum, imported after anyshape: one member more, by its value alone."""
    folder = tmp_path / "accelerate" / "utils"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "dataclasses.py").write_text(
        "import enum\nclass DynamoBackend(str, enum.Enum):\n    NO = 'NO'\n    INDUCTOR = 'INDUCTOR'\n"
    )
    for name in [n for n in sys.modules if n.split(".")[0] == "accelerate"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    library_names.make_known()
    before = len(sys.meta_path)
    library_names.make_known()
    assert len(sys.meta_path) == before
    found = importlib.import_module("accelerate.utils.dataclasses").DynamoBackend
    for name in [n for n in sys.modules if n.split(".")[0] == "accelerate"]:
        del sys.modules[name]
    assert not any(isinstance(f, library_names._Finder) for f in sys.meta_path)
    assert found("ANYSHAPE") is found("ANYSHAPE") and found("ANYSHAPE").value.lower() == "anyshape"
    assert isinstance(found("ANYSHAPE"), found) and found("ANYSHAPE") != found.NO
    with pytest.raises(ValueError, match="OTHER"):
        found("OTHER")


def test_a_list_that_has_the_name_is_left_alone() -> None:
    class DynamoBackend(str, enum.Enum):
        ANYSHAPE = "ANYSHAPE"

    module = types.ModuleType("accelerate.utils.dataclasses")
    module.DynamoBackend = DynamoBackend  # type: ignore[attr-defined]
    library_names._add_to(module)
    library_names._add_to(types.ModuleType("another"))
    assert DynamoBackend("ANYSHAPE") is DynamoBackend.ANYSHAPE and "_missing_" not in vars(DynamoBackend)


def test_accelerate_and_its_options() -> None:
    accelerate = pytest.importorskip("accelerate")
    plugin = accelerate.utils.TorchDynamoPlugin(backend="anyshape", options=dict(QUICK))
    assert plugin.to_kwargs()["backend"] == "anyshape"
    prepared: Any = accelerate.Accelerator(dynamo_plugin=plugin, cpu=True).prepare(net())
    for n in (3, 1, 0):
        prepared(torch.randn(n, 4))
    assert len(prepared.programs) == 1
