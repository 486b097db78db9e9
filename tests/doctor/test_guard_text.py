"""The forms of torch's text, as torch 2.13 and 2.15 write them."""

from __future__ import annotations

from typing import Any

import pytest

from anyshape.doctor import guard_text
from anyshape.doctor.guard_text import TensorFacts

TENSOR = (
    "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, "
    "device=None, requires_grad=False, size=[None, 4], stride=[4, 1])  # return x + 1  # app/m.py:7 in f"
)
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("L['n'] == 3    # y = x * n  # app/m.py:3 in f", {"kind": "value", "source": "L['n']", "expected": 3, "line": 3}),
    ("n == 3    # y = x * n  # app/m.py:3 in f", {"kind": "value", "source": "L['n']", "code": "y = x * n"}),
    ("L['self'].mode == 'train'", {"kind": "value", "source": "L['self'].mode", "expected": "train"}),
    ("len(L['cache']) == 1", {"kind": "length", "source": "L['cache']", "expected": 1}),
    ("len(L['state']) != 2", {"kind": "length", "source": "L['state']", "expected": 2}),
    ("L['mask'] is None", {"kind": "type", "source": "L['mask']"}),
    ("___check_type_id(L['x'], 1234), type=<class 'torch.Tensor'>", {"kind": "type", "source": "L['x']"}),
    ("___check_obj_id(G['act'], 1234), type=<class 'function'>", {"kind": "identity", "source": "G['act']"}),
    ('___check_global_state() against {"grad_mode":true}', {"kind": "global_state", "actual": None}),
    ("GLOBAL_STATE changed: autocast(cpu)_enabled ", {"kind": "global_state", "actual": "autocast(cpu)_enabled"}),
    ("2 <= L['x'].size()[0]", {"kind": "shape", "source": "L['x']", "dim": 0}),
    (
        "6 <= L['x'].size()[0]  # if x.shape[0] > 5:  # app/m.py:9 in f (_dynamo/variables/tensor.py:26 in evaluate_expr)",
        {"kind": "shape", "line": 9, "asked_by": "user", "framework": "_dynamo/variables/tensor.py:26"},
    ),
    (
        "Eq(L['x'].size()[0], 4)  # y = f(x)  # app/m.py:9 in f (_refs/__init__.py:26 in roll)",
        {"kind": "shape", "asked_by": "framework"},
    ),
    (
        "tensor 'x' size mismatch at index 0. expected 8, actual 9",
        {"kind": "size", "dim": 0, "expected": 8, "actual": 9},
    ),
    ("tensor 'x' stride mismatch at index 1. expected 1, actual 4", {"kind": "stride", "dim": 1, "source": "L['x']"}),
    ("tensor 'x' rank mismatch. expected 1, actual 2", {"kind": "rank", "expected": 1, "actual": 2}),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", {"kind": "dtype", "expected": "Float"}),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=0", {"kind": "requires_grad", "expected": False}),
    ("Duplicate tensors found: ['a', 'b']", {"kind": "aliasing"}),
    ("Duplicate tensors found: ['a', 'b']", {"kind": "aliasing", "source": "L['a'], L['b']"}),
    ("L['y'] is L['x']", {"kind": "aliasing", "source": "L['y'], L['x']"}),
    ("y is x  # return x + y  # app/m.py:3 in f", {"kind": "aliasing", "source": "L['y'], L['x']", "line": 3}),
    ("L['x'].storage_offset() == 4", {"kind": "offset", "source": "L['x']", "expected": 4}),
    ("x.storage_offset() != 0", {"kind": "offset", "source": "L['x']", "expected": 0}),
    ("L['mask'] is not None", {"kind": "type", "source": "L['mask']"}),
    ("4 <= L['n'].item()", {"kind": "item", "source": "L['n'].item()"}),
    ("L['f'].__closure__[0].cell_contents == 2 (HINT: guard on \"count\")", {"kind": "value", "source": "G['count']"}),
    ("something nobody has seen", {"kind": "other", "source": ""}),
]


@pytest.mark.parametrize(("text", "expected"), FORMS, ids=[text[:40] for text, _ in FORMS])
def test_a_guard_is_read(text: str, expected: dict[str, Any]) -> None:
    reason = guard_text.reason("0/0", text)
    assert {name: getattr(reason, name) for name in expected} == expected


def test_a_tensor_can_differ_in_several_ways_at_once() -> None:
    source, facts = guard_text.tensor_expectation(TENSOR)  # type: ignore[misc]
    assert source == "L['x']" and facts.size == (None, 4)
    actual = TensorFacts("Parameter", "torch.float64", True, (9, 5), (5, 1))
    kinds = [(kind, dim) for kind, dim, _, _ in guard_text.tensor_differences(facts, actual)]
    assert kinds == [("tensor_type", None), ("dtype", None), ("requires_grad", None), ("size", 1), ("stride", 0)]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['x']", "x"),
        ("L['batch']['ids']", "batch['ids']"),
        ("L['self']._modules['proj']._parameters['weight']", "self.proj.weight"),
        ("G['SCALE']", "SCALE"),
        ("L['self'].__dict__['step']", "self.step"),
        ("", ""),
    ],
)
def test_a_source_in_the_words_of_the_user(source: str, name: str) -> None:
    assert guard_text.argument(source) == name


def test_a_guard_of_two_origins_keeps_the_users_line() -> None:
    text = "2 <= L['x'].size()[0] <= 6  # y = x * n  # app/m.py:3 in f (user code shown is first use of it) and if x.shape[0] > 6:  # app/m.py:4 in f"
    written = guard_text.split(text)
    assert (written.line, written.code) == (4, "if x.shape[0] > 6:")


def test_anything_is_read_without_an_exception() -> None:
    import random

    chosen = random.Random(0)
    pieces = [
        "L['x']",
        "G['",
        "size()[0]",
        " == ",
        "len(",
        ")",
        "(HINT: ",
        "  # ",
        ":3 in f",
        "check_tensor(",
        "\n",
        "'",
        "]",
        "é",
    ]
    for _ in range(2000):
        text = "".join(chosen.choice(pieces) for _ in range(chosen.randrange(1, 9)))
        guard_text.reason("0/0", text)
        guard_text.argument(text)
        guard_text.readable(text)
