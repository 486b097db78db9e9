"""Programs over Python numbers.

Owns the grammar of `anyshape fuzz --numbers`: functions of ints, floats, sizes and numbers read from tensors, with
Python's operators on them, mixed with tensors, and calls with numbers at which compilers go wrong. A program is text in
a tree, so that a part of it can stand for the whole.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

# What a part gives -> templates, whose fields say what they are made of: i(nt), f(loat), b(ool), t(ensor).
_INTS = (
    "({i} + {i})", "({i} - {i})", "({i} * {i})", "({i} // {i})", "({i} % {i})", "(-{i})", "abs({i})", "(~{i})",
    "({i} ** ({i} % 4))", "({i} << ({i} % 5))", "({i} >> ({i} % 70))", "({i} & {i})", "({i} | {i})", "({i} ^ {i})",
    "max({i}, {i})", "min({i}, {i})", "max({i}, {i}, {i})", "divmod({i}, {i})[0]", "divmod({i}, {i})[1]",
    "round({i})", "round({i}, -1)", "int({i})", "int({f})", "round({f})", "math.floor({f})", "math.ceil({f})",
    "math.gcd({i}, {i})", "({b} + {i})", "int({b})", "({i} if {b} else {i})", "math.isqrt(abs({i}))",
    "({i}).bit_length()",
    "math.trunc({f})", "({i} // {k})", "({i} % {k})", "({k} // {i})", "sum([{i}, {i}])", "max({i}, {i}, key=abs)",
    "(1 << ({i} % 9 - 3))", "({i} >> ({i} % 9 - 3))", "len(range({i} % 9))", "math.factorial({i} % 9)",
    "pow({i}, 2, 7)",
    "sorted([{i}, 2, {i}])[1]", "divmod({i}, {k})[0]", "int({i} / {k})", "({b} - {b})",
)  # fmt: skip
_FLOATS = (
    "({f} + {f})", "({f} - {f})", "({f} * {f})", "({f} / {f})", "({i} / {i})", "({f} // {f})", "({f} % {f})",
    "(-{f})", "abs({f})", "float({i})", "({f} + {i})", "({i} * {f})", "({i} / {k})", "({f} * {f} + {f})",
    "math.copysign({f}, {f})", "math.sqrt(abs({f}))", "math.exp(-abs({f}))", "({f} ** 2)", "({f} if {b} else {f})",
    "round({f}, 1)", "math.fmod({f}, {f})", "math.sin({f})", "({i} ** -2)", "float({b})", "({f} + 1e16 - 1e16)",
    "math.asin({f})", "math.cosh({f})", "math.log2({f})", "math.tan({f})", "math.log(abs({f}) + 1)",
    "({i} % {k} * 0.5)",
    "(y.item() * 0.5)", "z.item()", "(z.item() * {f})", "sum([{f}, {i}])", "(x.shape[0] * {f})",
    "math.floor({f}) * 0.5",
)  # fmt: skip
_ANY = (
    "max({f}, {i})",
    "min({i}, {f})",
    "max({f}, {f})",
    "min({f}, {f})",
    "max({b}, {i})",
    "({i} ** {k})",
    "f'{{{i}}}'",
    "f'{{{i}:>6}}'",
    "str({i})",
    "[{i}, {f}][1:]",
    "slice({i}, {i})",
    "{{'n': {i}, 'a': {f}}}",
)
_BOOLS = (
    "({i} < {i})", "({i} <= {i})", "({i} == {i})", "({i} != {i})", "({f} > {f})", "({f} >= {i})", "({f} == {i})",
    "(not {b})", "({b} and {b})", "({b} or {b})", "bool({i})", "({i} in ({i}, 2))", "(2 in x.shape)", "(0 in [{i}, 2])",
    "math.isnan({f})", "math.isinf({f})", "({f}).is_integer()", "isinstance({i}, bool)", "({i} % 2 == 0)",
    "({i} in range({k}))", "({k} in range({i} % 9))", "({i} == complex({i}, 0))", "(0 < {i} <= 7)",
    "({f} in (0.5, {f}))",
    "({i} in {{2: 1, 5: 2}})", "({i} == {f})",
)  # fmt: skip
_TENSORS = (
    "x + {i}", "x * {f}", "x[: {i}]", "x[{i} :]", "x[: {k} // {i}]", "x.new_ones(({i} % 7,))", "torch.full((3,), {i})",
    "torch.full((2,), {f})", "torch.arange(3) * {i}", "torch.arange(3) - {b}", "x.roll({i}, 0)", "x.sum() / {f}",
    "torch.arange(3) // {i}", "torch.arange(3) % {i}", "torch.tensor([{i}, 1])", "torch.tensor({f})",
    "x.clamp({f}, 2.0)",
    "torch.arange(0, 6, {i} % 5)", "torch.arange(6, 0, -({i} % 5))", "x.repeat({i} % 3, 1)", "x.fill_({i})",
    "torch.where(x > {f}, x, {f})", "torch.div(torch.arange(3), {i}, rounding_mode='trunc')", "x.narrow(0, 0, {i})",
    "F.leaky_relu(x, {f})", "x.add(x, alpha={f})", "torch.rot90(x, {i})", "F.pad(x, (0, {i} % 4), value={f})",
    "x.pow({i} % 4)", "x ** {f}", "x.select(0, {i})", "torch.linspace(0, 1, {i} % 6)", "x.view(-1)[{i} :: 2]",
    "torch.remainder(x, {f})", "x.index_select(0, torch.tensor([{i}]))", "x.diagonal({i})", "torch.ones(3) / {i}",
    "x.double() * {f}", "x.double() + {i}", "torch.full((2,), {f}, dtype=torch.float64)",
    "x.var(0, correction={i} % 3)",
    "F.layer_norm(x, x.shape[1:], eps={f})", "F.softplus(x, beta={f})", "F.hardtanh(x, -1.0, {f})", "F.elu(x, {f})",
    "torch.round(x, decimals={i} % 4)", "x.cumsum({i} % 2)", "x.topk({i} % 3, 0)[0]", "x.repeat_interleave({i} % 3)",
    "torch.vander(x[:, 0], {i} % 5)", "torch.tensor([{f}, {i}], dtype=torch.float64)", "x.long() << ({i} % 9)",
    "torch.logspace(0, {f}, 3)", "F.scaled_dot_product_attention(x[None], x[None], x[None], scale={f})",
)  # fmt: skip
_PARTS = {"i": _INTS, "f": _FLOATS, "b": _BOOLS, "t": _TENSORS, "a": _ANY}
_NAMES = {
    "i": ("n", "m", "n", "m", "x.shape[0]", "x.shape[1]", "x.numel()", "len(x)", "y.item()"),
    "f": ("a", "a", "c"),
}
_CONSTANTS = {
    "i": ("2", "3", "-2", "7", "-1", "0", "10", "2**31"), "f": ("0.5", "-3.0", "2.0", "0.0", "1e300"),
    "k": ("2", "3", "-2", "7", "-4", "100"), "b": ("(n > 0)", "(a > 0)", "q", "q", "(x.shape[0] > 2)"),
}  # fmt: skip
INTS = (
    5,
    -3,
    2,
    0,
    1,
    7,
    -2,
    -1,
    12,
    100,
    -100,
    2**24 + 1,
    2**31,
    -(2**31) - 3,
    2**40,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**70,
    True,
    4,
    6,
)
FLOATS = ("0.5", "2.0", "-1.5", "0.0", "-0.0", "1e300", "-2.0", "float('inf')", "float('nan')", "3.0", "0.1", "1e-310")
SIZES = (4, 3, 5, 2, 1, 0, 7)
ARGUMENTS = "x, n, m, a, c, q, y, z"


@dataclasses.dataclass(frozen=True)
class Part:
    """An expression: a template, and what its fields are."""

    kind: str
    template: str
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        text, fields = "", iter(self.parts)
        rest = self.template
        while rest:
            if rest[0] == "{" and rest[2:3] == "}":
                text, rest = text + next(fields).text, rest[3:]
            else:
                size = 2 if rest[:2] in ("{{", "}}") else 1
                text, rest = text + rest[0], rest[size:]
        return text


@dataclasses.dataclass(frozen=True)
class Statement:
    """What a line binds, and whether it stands in a `try`."""

    value: Part
    tried: bool = False

    def source(self, name: str) -> str:
        line = f"    {name} = {self.value.text}\n"
        if not self.tried:
            return line
        return f"    try:\n    {line}    except (ZeroDivisionError, OverflowError, ValueError):\n        {name} = -99\n"


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of numbers, and the arguments of its calls as text."""

    statements: tuple[Statement, ...]
    calls: tuple[str, ...]

    @property
    def source(self) -> str:
        names = [f"v{i}" for i in range(len(self.statements))]
        body = "".join(s.source(name) for s, name in zip(self.statements, names, strict=True))
        return f"def fn({ARGUMENTS}):\n{body}    return x + 1, {', '.join(names)}\n"


def programs(seed: int, start: int, stop: int) -> Iterator[Program]:
    """Programs number `start` to `stop`; each is the same whichever others are drawn."""
    for number in range(start, stop):
        yield _program(random.Random(f"{seed} {number}"))


def _program(draw: random.Random) -> Program:
    kinds = [draw.choice("iiiffabttt") for _ in range(draw.choice((1, 1, 2, 2, 3)))]
    statements = tuple(Statement(_part(draw, kind, draw.choice((1, 2, 2, 3))), draw.random() < 0.15) for kind in kinds)
    usual = draw.random() < 0.5
    calls = tuple(_call(draw, usual=usual) for _ in range(draw.choice((3, 4, 5))))
    return Program(statements, calls)


def _part(draw: random.Random, kind: str, depth: int) -> Part:
    if kind in _CONSTANTS and (depth == 0 or kind == "k"):
        leaves = _NAMES.get(kind, ()) if draw.random() < 0.75 else ()
        return Part(kind, draw.choice(leaves or _CONSTANTS[kind]))
    template = draw.choice(_PARTS[kind])
    fields = [template[i + 1] for i in range(len(template) - 2) if template[i] == "{" and template[i + 2] == "}"]
    return Part(kind, template, tuple(_part(draw, field, max(depth - 1, 0)) for field in fields))


def _call(draw: random.Random, *, usual: bool) -> str:
    ints = INTS[:11] if usual else INTS
    floats = FLOATS[:4] if usual else FLOATS
    sizes = f"{draw.choice(SIZES)}, {draw.choice(SIZES)}"
    n, m, y = (draw.choice(ints) for _ in range(3))
    y = y if -(2**63) <= y < 2**63 else 3
    truth = draw.choice((True, False))
    a, c, z = (draw.choice(floats) for _ in range(3))
    return f"tensor({sizes}), {n}, {m}, {a}, {c}, {truth}, torch.tensor({int(y)}), torch.tensor({z})"


# -- smaller ones ----------------------------------------------------------------------------------------------


def smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them."""
    for i in range(len(program.calls)):
        if len(program.calls) > 1:
            yield dataclasses.replace(program, calls=program.calls[:i] + program.calls[i + 1 :])
    for i, statement in enumerate(program.statements):
        with_one = lambda *one, i=i: dataclasses.replace(
            program, statements=program.statements[:i] + one + program.statements[i + 1 :]
        )
        if len(program.statements) > 1:
            yield with_one()
        if statement.tried:
            yield with_one(dataclasses.replace(statement, tried=False))
        for value in _smaller_parts(statement.value):
            yield with_one(dataclasses.replace(statement, value=value))


def _smaller_parts(part: Part) -> Iterator[Part]:
    yield from (p for p in part.parts if p.kind == part.kind)
    if part.parts and part.kind in _CONSTANTS:
        yield from (Part(part.kind, name) for name in (*_NAMES.get(part.kind, ())[:2], _CONSTANTS[part.kind][0]))
    for i, inner in enumerate(part.parts):
        for value in _smaller_parts(inner):
            yield dataclasses.replace(part, parts=(*part.parts[:i], value, *part.parts[i + 1 :]))
