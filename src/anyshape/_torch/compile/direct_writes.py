"""Lowerings of `copy_` and `out=` kernels that write into the caller's buffers.

Owns the lowerings that stand, while Inductor compiles for anyshape, in place of its own for `copy_` (lowering.py) and
for the kernels that write several results. Stock code gives an extern kernel or a reduction a buffer of its own and
copies from it, because somebody might still read that buffer after the target changed; where the graph shows that
nobody does, the kernel gets the target itself. They can go when Inductor looks at the graph in its own `copy_`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair

aten = torch.ops.aten

# Kernels with several results: the overload that writes them, and the names of its buffers.
SEVERAL: dict[Any, tuple[str, tuple[str, ...]]] = {
    aten.topk.default: ("torch.ops.aten.topk.values", ("values", "indices")),
    aten.sort.default: ("torch.ops.aten.sort.values", ("values", "indices")),
    aten.sort.stable: ("torch.ops.aten.sort.values_stable", ("values", "indices")),
    aten.linalg_cholesky_ex.default: ("torch.ops.aten.linalg_cholesky_ex.L", ("L", "info")),
    aten.linalg_inv_ex.default: ("torch.ops.aten.linalg_inv_ex.inverse", ("inverse", "info")),
}


@repair(
    "torch:_TorchCompileInductorWrapper.__call__",
    scope="compile",
    phase="lowering",
    kind="speed",
    symptom="Inductor's lowerings are imported by those who do not compile with it.",
    cause="They are in a table of a module of Inductor's.",
    cure="The direct writes hold from the first call of Inductor on.",
    goes="with them",
)
def compile_with_inductor(stock: Any) -> Any:
    def compile_(self: Any, model: Any, inputs: Any) -> Any:
        with registry.entered("inductor"):
            return stock(self, model, inputs)

    return compile_


_SLOW = "A result is computed into a buffer of its own and copied to the caller's."
_GOES = "when Inductor looks at the graph in its own `copy_`"


@repair(
    *(f"torch._inductor.lowering:lowerings[{op!s}]" for op in SEVERAL),
    scope="inductor",
    phase="lowering",
    kind="speed",
    symptom=_SLOW,
    cause="lowering.py has kernels that write several results allocate them.",
    cure="A kernel writes to the target itself where nobody reads the buffer after it.",
    goes=_GOES,
    absent="skip",
)
def several(stock: Any, op: Any) -> Any:
    return _several(op, stock)


@repair(
    "torch._inductor.lowering:lowerings[aten.copy_.default]",
    scope="inductor",
    phase="lowering",
    kind="speed",
    symptom=_SLOW,
    cause="lowering.py:copy_ copies, since somebody might still read the buffer after the target changed.",
    cure="The kernel gets the target where the graph shows that nobody does.",
    goes=_GOES,
    over=("reinplace_hazards.copy",),
)
def _copy(stock: Callable[..., Any]) -> Callable[..., Any]:
    def copy_(dst: Any, src: Any, *rest: Any, **options: Any) -> Any:
        from torch._inductor.virtualized import V

        node = V.graph.current_node
        direct = node is not None and node.target is aten.copy_.default and _written(node) is not None
        if direct and not V.graph.cpp_wrapper and (src is dst or _write_into(dst, src)):
            return dst
        return stock(dst, src, *rest, **options)

    return copy_


@repair(
    "torch._inductor.lowering:lowerings[aten.copy.default]",
    scope="inductor",
    phase="lowering",
    kind="speed",
    symptom=_SLOW,
    cause="lowering.py:copy makes a buffer of what is copied on into an input.",
    cure="It is handed on as it is.",
    goes=_GOES,
)
def _functional_copy(stock: Callable[..., Any]) -> Callable[..., Any]:
    """What is only copied on into an input needs no copy before."""

    def copy(dst: Any, src: Any, *rest: Any, **options: Any) -> Any:
        from torch._inductor.virtualized import V

        node = V.graph.current_node
        if node is not None and node.target is aten.copy.default and len(node.users) == 1:
            (user,) = node.users
            if user.target is aten.copy_.default and user.args[1] is node and _written(user) is not None:
                return src
        return stock(dst, src, *rest, **options)

    return copy


def _write_into(dst: Any, value: Any) -> bool:
    """Make the operation that computes `value` write to `dst` instead of a buffer of its own."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    box = getattr(value, "data", None)
    target = getattr(dst, "data", None)
    if not isinstance(box, ir.StorageBox) or not isinstance(target, ir.StorageBox):
        return False
    if not isinstance(target.data, ir.InputBuffer):
        return False
    if isinstance(box.data, ir.ComputedBuffer) and isinstance(box.data.layout, ir.FlexibleLayout):
        V.graph.mark_buffer_mutated(target.get_name())
        box.data.layout = ir.MutationLayoutSHOULDREMOVE(target)
        return True
    if type(box.data) is ir.ExternKernelOut and box.data.output_view is None:
        V.graph.mark_buffer_mutated(target.get_name())
        box.data.layout = ir.MutationLayoutSHOULDREMOVE(target)
        box.data.output_view = target.data
        return True
    return False


def _several(op: Any, stock: Callable[..., Any]) -> Callable[..., Any]:
    kernel, names = SEVERAL[op]

    def lowering(*args: Any, **kwargs: Any) -> Any:
        from torch._inductor.lowering import empty_strided
        from torch._inductor.virtualized import V

        node = V.graph.current_node
        targets = _targets(node, len(names)) if node is not None and node.target is op else []
        if not any(targets) or kwargs or V.graph.cpp_wrapper:
            return stock(*args, **kwargs)
        buffers = []
        for position, target in enumerate(targets):
            if target is not None:
                buffers.append(V.graph.env[target])
                continue
            fake = node.meta["val"][position]
            size, stride = ([_expr(n) for n in numbers] for numbers in (fake.shape, fake.stride()))
            buffer = empty_strided(size, stride, dtype=fake.dtype, device=fake.device)
            buffer.realize()
            buffers.append(buffer)
        given = [*args[1:], *(a.default_value for a in op._schema.arguments[len(args) :])]
        constants = {a.name: _expr(v) for a, v in zip(op._schema.arguments[1:], given, strict=True)}
        _writes_several()(kernel, args[0], constants, dict(zip(names, buffers, strict=True)))
        return tuple(buffers)

    return lowering


def _writes_several() -> type:
    """The Inductor operation; a class made at the first use, so that Inductor is not imported before."""
    global _WRITES_SEVERAL
    if _WRITES_SEVERAL is not None:
        return _WRITES_SEVERAL
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    class WritesSeveral(ir.ExternKernel):
        def __init__(self, kernel: str, read: Any, constants: dict[str, Any], buffers: dict[str, Any]) -> None:
            inputs = [self.realize_input(read), *buffers.values()]
            layout = ir.NoneLayout(device=read.get_device())
            super().__init__(None, layout, self.unwrap_storage(inputs), tuple(constants.values()))
            self.kernel, self.constant_names, self.buffer_names = kernel, tuple(constants), tuple(buffers)
            for buffer in buffers.values():
                V.graph.mark_buffer_mutated(buffer.get_name())
            self.mutation_outputs = [
                ir.MutationOutput(ir.NoneLayout(device=read.get_device()), b.data.data, self) for b in buffers.values()
            ]
            V.graph.register_operation(self)

        def codegen(self, wrapper: Any) -> None:
            read, *buffers = (i.codegen_reference() for i in self.inputs)
            constants = map(wrapper.val_to_arg_str, self.constant_args)
            named = zip((*self.constant_names, *self.buffer_names), (*constants, *buffers), strict=True)
            wrapper.writeline(f"{self.kernel}({', '.join([read, *(f'{n}={v}' for n, v in named)])})")

        def should_allocate(self) -> bool:
            return False

        def has_side_effects(self) -> bool:
            return True

        def get_outputs(self) -> list[Any]:
            return list(self.mutation_outputs)

        def get_unbacked_symbol_defs(self) -> Any:
            return type(super().get_unbacked_symbol_defs())()

    _WRITES_SEVERAL = WritesSeveral
    return WritesSeveral


_WRITES_SEVERAL: type | None = None


# -- what can be said of a graph before it is compiled -----------------------------------------------------------

# Kernels that Inductor calls with a buffer for their result.
_WRITE_TO = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}


def survey(graph: Any) -> dict[int, str | None]:
    """For each input that the graph writes to, by position: None if its kernel writes there, else why it does not."""
    found: dict[int, str | None] = {}
    places = {n: i for i, n in enumerate(n for n in graph.graph.nodes if n.op == "placeholder")}
    for node in graph.graph.nodes:
        if node.target is aten.copy_.default and node.args[0] in places:
            found[places[node.args[0]]] = _why_not(node)
    return found


def _why_not(copy: Any) -> str | None:
    source = _written(copy)
    if source is None:
        return "the result or the buffer is read elsewhere, or they differ in dtype"
    maker = source.args[0] if source.target is operator.getitem else source
    direct = maker.target in SEVERAL or maker.target in _WRITE_TO or _is_generated(maker.target)
    return None if direct else f"{maker.target} has no kernel that writes to a given buffer"


def _is_generated(target: Any) -> bool:
    """Whether Inductor writes the kernel itself: it stores where it is told to."""
    from torch._inductor.lowering import fallbacks, lowerings

    return target in lowerings and target not in fallbacks and target not in _FALL_BACK_ON_CPU


# Lowerings that call torch's kernel on a CPU.
_FALL_BACK_ON_CPU = {aten.cumsum.default, aten.cumprod.default, aten.cummax.default, aten.cummin.default}
_FALL_BACK_ON_CPU |= {aten.logcumsumexp.default}


# -- what the graph shows --------------------------------------------------------------------------------------


def _written(node: Any) -> Any:
    """The node whose result `node` (a `copy_` into an input) stores and nobody else reads; else None."""
    dst, src = node.args[:2]
    if not isinstance(src, torch.fx.Node) or dst.op != "placeholder":
        return None
    copies = {node}
    if src.target is aten.copy.default and src.args[0] is dst:
        if set(src.users) - {node}:
            return None
        copies.add(src)
        src = src.args[1]
    if not isinstance(src, torch.fx.Node) or src.op != "call_function":
        return None
    if set(src.users) - copies or set(dst.users) - copies - _outputs(dst):
        return None
    return src if _alike(dst, src) else None


def _outputs(node: Any) -> set[Any]:
    return {u for u in node.users if u.op == "output"}


def _targets(node: Any, count: int) -> list[Any]:
    """For each result of a node with several, the input that it is copied into and that nobody reads; else None."""
    targets: list[Any] = [None] * count
    for user in node.users:
        if len(user.args) < 2 or not isinstance(user.args[1], int):
            return [None] * count
        copies = [u for u in user.users if u.target is aten.copy_.default]
        through = [c for u in user.users if u.target is aten.copy.default for c in u.users]
        for copy in (*copies, *through):
            if copy.target is aten.copy_.default and _written(copy) is user:
                targets[user.args[1]] = copy.args[0]
    return targets


def _alike(a: Any, b: Any) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    same = [_expr(n) for n in x.shape] == [_expr(n) for n in y.shape]
    return same and x.dtype == y.dtype and x.device == y.device and not x.is_conj() and not x.dtype.is_complex


def _expr(value: Any) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else value
