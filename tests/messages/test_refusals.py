"""What cannot work is refused with a sentence of its own: what came, and what to write instead."""

from __future__ import annotations

import ast
import pathlib
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape import errors

SOURCE = pathlib.Path(anyshape.__file__).parent
LINEAR = torch.nn.Linear(4, 2)


@torch.no_grad()
def without_gradients(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.inference_mode()
def inferring(x: torch.Tensor) -> torch.Tensor:
    return x + 1


CASES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a class": (
        lambda: anyshape.compile(torch.nn.Linear),
        ("takes a module, and this is the class of one", "torch.nn.modules.linear.Linear", "anyshape.compile(Linear(...))"),
    ),
    "a number": (lambda: anyshape.compile(3), ("takes a function or a module, not int", "value: 3")),
    "a tensor": (
        lambda: anyshape.precompile(LINEAR, torch.ones(3, 4)),
        ("args is a tuple of the arguments", "value: torch.float32 (3, 4)", "anyshape.precompile(fn, (x,))"),
    ),
    "keywords": (
        lambda: anyshape.precompile(LINEAR, (), [1]),
        ("kwargs is a dict", "value: [1]", '{"mask": mask}'),
    ),
    "another call": (
        lambda: anyshape.precompile(LINEAR, (), {"y": torch.ones(3)}),
        ("does not fit the function: missing a required argument: 'input'", "value: (y=Tensor)", "(input: torch.Tensor)"),
    ),
    "a further call": (
        lambda: anyshape.precompile(LINEAR, (torch.ones(3, 4),), calls=[torch.ones(3, 4)]),
        ("args is a tuple of the arguments", "value: torch.float32 (3, 4)"),
    ),
    "no_grad": (
        lambda: anyshape.precompile(without_gradients, (torch.ones(3),)),
        ("more than one frame", "with torch.no_grad(): anyshape.precompile(without_gradients, args)"),
    ),
    "inference_mode": (
        lambda: anyshape.precompile(inferring, (torch.ones(3),)),
        ("more than one frame", "with torch.inference_mode(): anyshape.precompile(inferring, args)"),
    ),
    "a text for a key": (
        lambda: anyshape.load(__file__, key="secret"),
        ("a key is bytes", "this is a text of 6 characters", "read_bytes()"),
    ),
    "no address": (lambda: anyshape.load(3), ("takes a path, a URL or an Artifact, and this is an int", "value: 3")),
    "two options": (
        lambda: anyshape.compile(torch.sin, mode="default", options={"max_autotune": True}),
        ("mode and options cannot both be given", "mode='default', options={'max_autotune': True}"),
    ),
    "a mark": (lambda: anyshape.mark_dynamic(3, 0), ("marks a tensor, and this is int", "value: 3")),
    "an export of a class": (
        lambda: anyshape.export(torch.nn.Linear, (torch.ones(3, 4),)),
        ("takes a module, and this is the class of one", "anyshape.export(Linear(...))"),
    ),
    "an export of a tensor": (
        lambda: anyshape.export(LINEAR, torch.ones(3, 4)),
        ("args is the tuple", "value: torch.float32 (3, 4)"),
    ),
    "a name for a dim": (
        lambda: anyshape.mark_dynamic(torch.ones(3), "batch"),
        ("a dim is a number, and this is a str", 'value: "batch"', "anyshape.mark_dynamic(x, 0)"),
    ),
    "a text for a switch": (
        lambda: anyshape.compile(LINEAR, dynamic="no"),
        ("dynamic is True or False, and this is a str", "dynamic=False"),
    ),
    "a text for a count": (
        lambda: anyshape.testing.expect_programs("1").__enter__(),
        ("a number, 0 or more", "value: '1'", "with expect_programs(1): ..."),
    ),
    "one size for many": (
        lambda: anyshape.testing.assert_any_shape(LINEAR, torch.ones, sizes=3),
        ("sizes are a list", "value: 3", "sizes=[5, 1, 0]"),
    ),
    "more than all calls": (
        lambda: anyshape.observe(sample=3).__enter__(),
        ("a share of the calls, from 0 to 1", "value: 3", "sample=0.01"),
    ),
    "no event": (lambda: anyshape.observe(limit=0).__enter__(), ("a number of events", "value: 0", "limit=10_000")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_came_and_what_to_write(name: str) -> None:
    call, says = CASES[name]
    with pytest.raises(anyshape.Error) as caught:
        call()
    text = str(caught.value)
    assert all(part in text for part in says), text
    assert "  fix:   " in text and "secret" not in text.replace("secret.key", "")


def test_a_traceback_names_the_class_as_it_is_imported() -> None:
    assert {kind.__name__ for kind in errors.EXPORTED} < set(anyshape.__all__)
    for kind in errors.EXPORTED:
        assert getattr(anyshape, kind.__name__) is kind
        if issubclass(kind, errors.Error):
            raised = kind("no")
            assert traceback.format_exception_only(raised)[0].startswith(f"anyshape.{kind.__name__}: ")
            assert type(pickle.loads(pickle.dumps(raised))) is kind


def test_a_declaration_that_cannot_be_read_is_named_so_too() -> None:
    with pytest.raises(anyshape.DeclarationError) as caught:
        anyshape.compile(LINEAR, where="n < 3")
    assert traceback.format_exception_only(caught.value)[0].startswith("anyshape.DeclarationError: AS010: ")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_old_names_warn_at_the_line_that_uses_them() -> None:
    f = anyshape.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(3))
    with pytest.warns(DeprecationWarning, match="program.behavior now") as seen:
        assert f.programs[0].behaviour == f.programs[0].behavior == "every size"
    with pytest.warns(DeprecationWarning, match="NewBehaviorError now") as also:
        assert anyshape.NewBehaviourError is anyshape.NewBehaviorError is errors.NewBehaviourError
    assert {w.filename for w in (*seen, *also)} == {__file__}


def test_a_loaded_program_in_another_grad_mode_says_so(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "f.any"
    anyshape.precompile(LINEAR, (torch.ones(3, 4),)).save(file)
    f = anyshape.load(file, LINEAR, trust=True)
    with torch.no_grad(), pytest.raises(anyshape.NewBehaviorError) as caught:
        f(torch.ones(3, 4))
    assert "grad mode is False, and it was made for True" in str(caught.value)
    assert "fix:   precompile it as it is called: under torch.no_grad()" in str(caught.value)
    assert "where: :0" not in str(caught.value)


# Nothing came that could be shown: the message is about what is not there, or about an object that cannot be put so.
WITHOUT_VALUE = {
    "errors.py",
    "_torch/versions.py",
    "doctor/command.py",
    "assumptions/oblivious.py",
    "declaration/solver.py",
}
KINDS = {kind.__name__ for kind in errors.EXPORTED if issubclass(kind, errors.Error)} - {"Error"}


@pytest.mark.parametrize("file", sorted(p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*.py")))
def test_every_refusal_shows_what_came(file: str) -> None:
    """With `value`, or in the line of the user that `where` shows."""
    bare = []
    for node in ast.walk(ast.parse((SOURCE / file).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in KINDS:
            named = {keyword.arg for keyword in node.keywords}
            if not named & {"value", "where"} or "fix" not in named:
                bare.append(f"line {node.lineno}: {ast.unparse(node)[:100]}")
    assert not bare or file in WITHOUT_VALUE, bare
