"""`out=` calls as functional call, shape requirement and copy.

Owns what stands, during a capture, in place of Dynamo's own treatment of `out=`
(`TorchInGraphFunctionVariable.call_function` in torch/_dynamo/variables/torch.py). Dynamo propagates the out=
overload itself, whose C++ meta kernels pin every size and whose resize check needs sizes it may not ask for
(pytorch/pytorch#135859). Here a call is its functional form, the requirement that the buffer has the result's shape,
and a copy into the buffer; the patch can go when Dynamo captures that by itself.

What eager does beyond that (resizing a buffer, casting into it, raising) is left to eager.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import sympy
import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lists import ListVariable, TupleVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import DynamicOutputShapeException, UnsupportedFakeTensorException
from torch.utils import _pytree as pytree

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv
from anyshape.ops import out as rules

_TOGETHER = ("max", "min", "aminmax")  # one kernel of a GPU writes to both buffers, at the same places


@repair(
    "torch._dynamo.variables.torch:TorchInGraphFunctionVariable.call_function",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    upstream="#135859",
    symptom="A call with `out=` pins every size, or fails.",
    cause="variables/torch.py propagates the out= overload itself, whose C++ meta kernels pin sizes.",
    cure="A call is its functional form, a requirement of the shape, and a copy into the buffer.",
    goes="when Dynamo captures that by itself",
)
def call_function(stock: Any, *, abandon: type[BaseException]) -> Any:
    """Capture out= calls; `abandon` is raised where a call has to run eagerly as a whole."""

    def call(self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        env = getattr(tx.output, "shape_env", None)
        if not isinstance(env, FreeShapeEnv):
            return stock(self, tx, args, kwargs)
        found = _OutCall.find(self, tx, args, kwargs, abandon)
        return stock(self, tx, args, kwargs) if found is None else found.capture()

    return call


class _OutCall:
    """One call with `out=`, while it is captured."""

    def __init__(
        self,
        function: Any,
        tx: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        outs: Sequence[Any],
        single: bool,
        abandon: type[BaseException],
    ) -> None:
        self.function = function
        self.name = _name(function.value)
        self.tx = tx
        self.args = list(args)
        self.kwargs = kwargs
        self.outs = list(outs)
        self.single = single
        self._abandon = abandon

    @classmethod
    def find(
        cls, function: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], abandon: type[BaseException]
    ) -> _OutCall | None:
        """The out= call that this is, or None."""
        args = [_realized(a) for a in args]
        args, kwargs = _named_out(function.value, args, kwargs)
        functional, names = _functional(function, kwargs)
        if not names:
            return None
        rest = {k: v for k, v in kwargs.items() if k not in names}
        single = len(names) == 1
        given = [_realized(kwargs[n]) for n in names]
        outs = given
        if single and isinstance(given[0], (TupleVariable, ListVariable)):
            outs, single = [_realized(o) for o in given[0].items], False
        if not outs or not all(_is_plain(o) for o in outs):
            return None
        call = cls(functional, tx, args, rest, outs=outs, single=single, abandon=abandon)
        call.check_that_eager_takes_it(function.value, dict(zip(names, given, strict=True)))
        return call

    # -- the three steps ---------------------------------------------------------------------------------------

    def capture(self) -> Any:
        self._check_memory()
        if self.name in rules.FACTORIES:
            self._take_options_from_out()
        result = self.function.call_function(self.tx, self.args, self.kwargs)
        results = [result] if self.single else getattr(result, "items", None)
        if not isinstance(results, list) or len(results) != len(self.outs) or not all(_is_plain(r) for r in results):
            self._leave("the call gives something else than its buffers hold")
        for out, value in zip(self.outs, results, strict=True):
            self._check_kind(_fake(out), _fake(value))
        for out, value in zip(self.outs, results, strict=True):
            self._require_shape(_fake(out), _fake(value))
        if self.name not in rules.CONTENT_FREE:
            for out, value in zip(self.outs, results, strict=True):
                out.call_method(self.tx, "copy_", [value], {})
        stack = TracingContext.extract_stack()
        where = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "?:0"
        for out in self.outs:
            source = out.source.name if out.source is not None else ""
            self.tx.output.shape_env.recording.out_calls.append((self.name, source, where))
        return self._returned(result)

    def _returned(self, result: Any) -> Any:
        """What eager gives back: the buffers themselves, in the op's own named tuple."""
        if self.single:
            return self.outs[0]
        if self.name in rules.RETURN_NOTHING:
            return ConstantVariable.create(None)
        result.items[:] = self.outs
        kind = result.python_type()
        named = (
            getattr(torch.return_types, f"{kind.__name__}_out", None)
            if kind.__module__ == "torch.return_types"
            else None
        )
        if named is not None:
            result.value = named([_fake(o) for o in self.outs])
            for attribute in ("tuple_cls", "value_type"):
                if hasattr(result, attribute):
                    setattr(result, attribute, named)
        return result

    def _take_options_from_out(self) -> None:
        fake = _fake(self.outs[0])
        for option in ("dtype", "device"):
            given = self.kwargs.get(option)
            if given is None or _is_none(given):
                self.kwargs[option] = VariableTracker.build(self.tx, getattr(fake, option))

    def _reads(self) -> list[Any]:
        return [_fake(v) for v in _tensors((self.args, list(self.kwargs.values())))]

    # -- what eager insists on ---------------------------------------------------------------------------------

    def check_that_eager_takes_it(self, function: Any, outs: dict[str, Any]) -> None:
        """Not every op takes `out=` in every form, nor every dtype; the functional form does not tell."""
        run = concrete.ConcreteRun(self.tx.output.shape_env.recording.hints)
        try:
            tree = [_value(a) for a in self.args], {k: _value(v) for k, v in {**self.kwargs, **outs}.items()}
            with run.running(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                args, kwargs = run.make(concrete.snapshot(tree))
                concrete.call(function, args, kwargs)
        except (NotImplementedError, DynamicOutputShapeException, UnsupportedFakeTensorException, concrete.NotPlain):
            pass  # nothing learnt: fake tensors cannot do it
        except Exception as error:
            if type(error).__module__.startswith("torch."):
                return
            self._run_eagerly(f"{type(error).__name__}: {error}")

    def _check_memory(self) -> None:
        """Overlap of the buffers with each other, with themselves or with what is read is eager's to judge."""
        outs = [_fake(o) for o in self.outs]
        reads = self._reads()
        for i, out in enumerate(outs):
            if out.is_conj() or out.is_neg():
                self._leave("the buffer is a lazy conjugate or negation")
            for size, stride in zip(out.shape, out.stride(), strict=True):
                if isinstance(stride, torch.SymInt):
                    if self._is_free(stride):  # neither dense nor expanded now; expanded at another call
                        torch._check(stride != 0)
                elif stride == 0 and not (isinstance(size, int) and size <= 1):
                    self._leave("the buffer is expanded")
            if any(_same_memory(out, other) for other in outs[:i]):
                self._leave("two buffers share memory")
            for read in reads:
                if _same_memory(out, read) and not (_is_pointwise(self.name) and _same_layout(out, read)):
                    self._leave("the buffer shares memory with an argument")
            if _is_random(self.name) and not out.is_contiguous():
                self._leave("random numbers for a buffer that is not contiguous")
        truth = self.tx.output.shape_env.recording.truth
        orders = {tuple(truth(_expr(n)) for n in out.stride()) for out in outs if out.device.type != "cpu"}
        if self.name in _TOGETHER and len(orders) > 1:
            self._leave("two buffers that lie unlike each other, which eager refuses on a GPU")
        if torch.is_grad_enabled() and any(out.requires_grad for out in outs):
            self._run_eagerly("a buffer that requires grad")

    def _is_free(self, stride: torch.SymInt) -> bool:
        record = self.tx.output.shape_env.recording.symbols.get(stride.node.expr)
        return record is not None and record.kind == "stride"

    def _check_kind(self, out: Any, value: Any) -> None:
        if value.requires_grad and torch.is_grad_enabled():
            self._run_eagerly("an argument that requires grad")
        if out.device != value.device:
            self._leave(f"a buffer on {out.device} for a result on {value.device}")
        if out.dtype != value.dtype:
            self._leave(f"a buffer of {out.dtype} for a result of {value.dtype}")
        if out.dim() != value.dim():
            if self.tx.output.shape_env.recording.substituted:
                self._run_eagerly("a stand-in for 0 or 1 gave the result another rank")
            self._leave(f"a buffer of {out.dim()} dims for a result of {value.dim()}")

    def _require_shape(self, out: Any, value: Any) -> None:
        env = self.tx.output.shape_env
        for mine, wanted in zip(out.shape, value.shape, strict=True):
            same = sympy.Eq(_expr(mine), _expr(wanted))
            if same == sympy.true:
                continue
            if same == sympy.false or (env.recording.owns(same) and env.recording.truth(same) == sympy.false):
                self._run_eagerly("a buffer that eager resizes")
            if not env.recording.owns(same):
                self._leave("a result whose size depends on data")
            torch._check(mine == wanted)

    # -- left to eager -----------------------------------------------------------------------------------------

    def _run_eagerly(self, why: str) -> NoReturn:
        raise self._abandon(f"{self.name}(out=): {why}")

    def _leave(self, why: str) -> NoReturn:
        """Eager makes this one call; the program around it is captured, unless it has to be one graph."""
        if self.tx.one_graph or self.tx.error_on_graph_break:
            self._run_eagerly(why)
        unimplemented(
            gb_type="anyshape: out= call left to eager",
            context=f"{self.name}: {why}",
            explanation=f"`{self.name}(out=)` runs eagerly: {why}.",
            hints=["Pass a buffer of the result's own shape, dtype and device that shares no memory with an argument."],
        )


def _functional(function: Any, kwargs: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """The callable without its buffers, and the names of the buffers given."""
    value = function.value
    given = {k for k, v in kwargs.items() if not _is_none(v)}
    if isinstance(value, torch._ops.OpOverload):
        overload = _without_buffers(value)
        names = tuple(a.name for a in value._schema.arguments if a.is_out)
        if overload is None or not names or not given.issuperset(names):
            return function, ()
        return TorchInGraphFunctionVariable(overload), names
    takes_out = isinstance(value, (types.BuiltinFunctionType, torch._ops.OpOverloadPacket)) or (
        isinstance(value, types.FunctionType) and _out_position(value) is not None
    )
    if takes_out and "out" in given:
        return function, ("out",)
    return function, ()


def _named_out(value: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """A Python function's positional `out` as a keyword (`torch.norm`, `torch.tensordot`)."""
    if not isinstance(value, types.FunctionType):
        return args, kwargs
    position = _out_position(value)
    if position is None or len(args) <= position:
        return args, kwargs
    names = list(inspect.signature(value).parameters)[position + 1 : len(args)]
    return args[:position], {**kwargs, "out": args[position], **dict(zip(names, args[position + 1 :], strict=True))}


def _out_position(function: types.FunctionType) -> int | None:
    """Where a Python function of torch takes `out`, if it does."""
    if not (getattr(function, "__module__", None) or "").startswith("torch"):
        return None
    with contextlib.suppress(TypeError, ValueError):
        parameters = list(inspect.signature(function).parameters)
        return parameters.index("out") if "out" in parameters else None
    return None


def _without_buffers(overload: Any) -> Any:
    packet = overload.overloadpacket
    wanted = [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]
    for name in packet.overloads():
        candidate = getattr(packet, name)
        if [(a.name, str(a.type)) for a in candidate._schema.arguments] == wanted and not candidate._schema.is_mutable:
            return candidate
    return None


def _name(value: Any) -> str:
    if isinstance(value, torch._ops.OpOverload):
        value = value.overloadpacket
    return str(getattr(value, "__name__", value))


def _overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name, None)
    return [getattr(packet, o) for o in packet.overloads()] if packet is not None else []


def _is_pointwise(name: str) -> bool:
    return any(torch.Tag.pointwise in o.tags for o in _overloads(name))


def _is_random(name: str) -> bool:
    return any(torch.Tag.nondeterministic_seeded in o.tags for o in _overloads(name))


def _is_none(variable: Any) -> bool:
    return bool(variable.is_python_constant()) and variable.as_python_constant() is None


def _realized(variable: Any) -> Any:
    realize: Callable[[], Any] | None = getattr(variable, "realize", None)
    return variable if realize is None else realize()


def _tensors(tree: Any) -> Iterator[Any]:
    """Tensor variables among arguments, and in lists and tuples of them."""
    for leaf in pytree.tree_leaves(tree):
        leaf = _realized(leaf)
        if isinstance(leaf, (TupleVariable, ListVariable)):
            yield from _tensors(list(leaf.items))
        elif leaf.is_tensor():
            yield leaf


def _value(variable: Any) -> Any:
    """The fake value of an argument."""
    variable = _realized(variable)
    if isinstance(variable, (TupleVariable, ListVariable)):
        return [_value(v) for v in variable.items]
    if variable.is_python_constant():
        return variable.as_python_constant()
    return _fake(variable)


def _is_plain(variable: Any) -> bool:
    return isinstance(variable, VariableTracker) and variable.is_tensor() and _fake(variable).layout is torch.strided


def _fake(variable: Any) -> Any:
    return variable.as_proxy().node.meta["example_value"]


def _same_memory(a: Any, b: Any) -> bool:
    return a.layout is torch.strided and b.layout is torch.strided and _storage(a) == _storage(b)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _same_layout(a: Any, b: Any) -> bool:
    numbers = lambda t: [_expr(n) for n in (*t.shape, *t.stride(), t.storage_offset())]
    return a.dim() == b.dim() and a.dtype == b.dtype and numbers(a) == numbers(b)


def _expr(number: Any) -> sympy.Expr:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)
