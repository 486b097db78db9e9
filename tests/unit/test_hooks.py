"""Declarations without code: the import hook, `import anyshape.auto`, `anyshape run`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

import anyshape
from anyshape import hooks
from anyshape.declaration import spec_file

MODULE = """
import torch

def double(x):
    return x * 2 if x.shape[0] > 4 else x

class Model(torch.nn.Module):
    def forward(self, x, mask=None):
        return x.sum(1) if mask is None else (x * mask).sum(1)
"""
SPEC = """
["{name}:double"]
compile = true
backend = "aot_eager"
where = ["n > 4"]
shapes = {{ x = "n" }}

["{name}:Model.forward"]
compile = true
backend = "aot_eager"
shapes = {{ x = "batch seq", mask = "batch seq" }}
"""


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"third_party_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "anyshape.toml").write_text(SPEC.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def check(module: object) -> None:
    double, model = module.double, module.Model()  # type: ignore[attr-defined]
    for n in (5, 9, 100):
        assert torch.equal(double(torch.ones(n)), torch.full((n,), 2.0))
    assert [p.behavior for p in double.programs] == ["every size"]
    with pytest.raises(anyshape.InvariantError, match="n > 4"):
        double(torch.ones(3))
    x = torch.randn(3, 4)
    torch.testing.assert_close(model(x), x.sum(1))
    torch.testing.assert_close(model(x, mask=torch.ones(3, 4)), x.sum(1))
    with pytest.raises(anyshape.InvariantError, match="seq is two sizes"):
        model(x, torch.ones(3, 5))


@pytest.mark.parametrize("imported_first", [False, True])
def test_a_package_is_compiled_without_an_edit(package: str, imported_first: bool) -> None:
    if imported_first:
        __import__(package)
    hook = hooks.install()
    assert hook is not None
    try:
        check(__import__(package))
    finally:
        hooks.remove(hook)
    module = sys.modules[package]
    assert not hasattr(module.double, "programs") and not hasattr(module.Model.forward, "programs")
    assert hook not in sys.meta_path


def test_a_name_that_is_not_there_names_the_line(package: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "anyshape.toml").write_text(f'\n["{package}:Modle.forward"]\ncompile = true\n')
    hook = hooks.install()
    assert hook is not None
    try:
        with pytest.raises(anyshape.DeclarationError, match=r"anyshape.toml:2") as caught:
            __import__(package)
        assert caught.value.code == "AS011"
    finally:
        hooks.remove(hook)


def test_a_file_declares_for_those_who_compile_themselves(package: str) -> None:
    module = __import__(package)
    f = anyshape.compile(module.double, backend="eager")
    assert [c.text for c in f.declaration.where] == ["n > 4"]
    with pytest.raises(anyshape.InvariantError):
        f(torch.ones(3))
    other = anyshape.compile(module.double, where=["n > 2"], backend="eager")
    assert torch.equal(other(torch.ones(3)), torch.ones(3))  # what the call says goes first
    model = anyshape.compile(module.Model(), backend="eager")
    with pytest.raises(anyshape.InvariantError, match="seq is two sizes"):
        model(torch.randn(3, 4), torch.ones(3, 5))


def test_without_a_file_nothing_happens(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.meta_path)
    if spec_file.find() is None:
        assert hooks.install() is None and sys.meta_path == before


def python(tmp_path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(pathlib.Path(anyshape.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


def test_run_and_auto(package: str, tmp_path: pathlib.Path) -> None:
    body = f"""
import sys, torch, {package} as p
print(sys.argv[1:], __name__, p.double(torch.ones(7)).sum().item(), len(p.double.programs))
"""
    (tmp_path / "script.py").write_text(body)
    ran = python(tmp_path, "-m", "anyshape", "run", "script.py", "--flag", "3")
    assert ran.stdout.strip() == "['--flag', '3'] __main__ 14.0 1", ran.stderr
    (tmp_path / "auto.py").write_text("import anyshape.auto" + body)
    assert python(tmp_path, "auto.py").stdout.strip() == "[] __main__ 14.0 1"


def test_a_hugging_face_model_through_the_file_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    target = "transformers.models.gpt2.modeling_gpt2:GPT2Model.forward"
    (tmp_path / "anyshape.toml").write_text(
        f"""
["{target}"]
compile = true
backend = "aot_eager"
where = ["1 <= batch", "2 <= seq <= 64"]

["{target}".shapes]
input_ids = "batch seq"
attention_mask = "batch seq"
"""
    )
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=100, n_positions=64)
    config.bos_token_id = config.eos_token_id = 1
    hook = hooks.install()
    assert hook is not None
    try:
        from transformers.models.gpt2.modeling_gpt2 import GPT2Model

        model, forward = GPT2Model(config).eval(), GPT2Model.forward
        with torch.no_grad():
            for batch, seq in ((2, 16), (3, 24), (1, 16), (1, 2), (5, 64), (7, 33)):
                ids, mask = torch.randint(0, 100, (batch, seq)), torch.ones(batch, seq, dtype=torch.long)
                words = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
                want = forward._function(model, **words).last_hidden_state
                torch.testing.assert_close(model(**words).last_hidden_state, want, rtol=1e-4, atol=1e-5)
            with pytest.raises(anyshape.InvariantError, match="seq"):
                model(input_ids=torch.zeros(2, 65, dtype=torch.long), use_cache=False)
        assert [p.behavior for p in forward.programs] == ["every size"] and not forward.fallbacks
    finally:
        hooks.remove(hook)


SCRIPT = """
import torch

def double(x):
    return x * 2

class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)

def plain(x):
    return x + 1

def backend(graph, inputs):
    return graph.forward

stock = torch.compile(double, backend=backend, dynamic=False)
decorated = torch.compile(backend=backend)(plain)
model = torch.compile(Model(), backend=backend)
for n in (2, 3, 1, 0):
    x = torch.ones(n, 3)
    assert torch.equal(stock(x), x * 2) and torch.equal(decorated(x), x + 1) and torch.equal(model(x), x.sum(1))
print(__name__, len(stock.programs), len(decorated.programs), hasattr(double, "programs"), hasattr(Model.forward, "programs"))
"""


@pytest.mark.parametrize("module", ["script", "__main__"])
def test_callables_of_the_script_itself(module: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    # No backend: the one that the script gives to torch.compile is used, not the file's.
    tables = [f'["{module}:{name}"]\ncompile = true\n' for name in ("double", "Model", "plain")]
    (tmp_path / "anyshape.toml").write_text("\n".join(tables))
    ran = python(tmp_path, "-m", "anyshape", "run", "script.py")
    assert ran.stdout.strip() == "__main__ 1 1 True True", ran.stderr


def test_a_module_is_run_as_python_does(tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "__main__.py").write_text(SCRIPT)
    (tmp_path / "anyshape.toml").write_text(
        '["package.__main__:double"]\ncompile = true\n["package.__main__:plain"]\ncompile = true\nbackend = "eager"\n'
    )
    ran = python(tmp_path, "-m", "anyshape", "run", "-m", "package")
    assert ran.stdout.strip() == "__main__ 1 1 True False", ran.stderr


def test_a_name_that_the_script_does_not_have(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "anyshape.toml").write_text('["script:duoble"]\ncompile = true\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(anyshape.DeclarationError, match=r"script.py has no function duoble") as caught:
        hooks.run("script.py", [])
    assert caught.value.code == "AS011" and "anyshape.toml:1" in str(caught.value)


@pytest.mark.parametrize("decorated", [False, True])
def test_what_a_package_gives_to_torch_compile_is_compiled_once(
    package: str, decorated: bool, tmp_path: pathlib.Path
) -> None:
    text = (
        MODULE.replace("def double", '@torch.compile(backend="eager", dynamic=True)\ndef double')
        if decorated
        else MODULE
    )
    (tmp_path / f"{package}.py").write_text(text)
    stock = torch.compile
    hook = hooks.install()
    assert hook is not None
    try:
        module = __import__(package)
        check(module)
        assert torch.compile(module.double) is module.double
        other = torch.compile(lambda x: x + 1, backend="eager")
        assert not hasattr(other, "programs"), "what the file does not name stays torch's"
    finally:
        hooks.remove(hook)
    assert torch.compile is stock
