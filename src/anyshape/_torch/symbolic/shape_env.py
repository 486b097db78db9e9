"""The ShapeEnv of a capture: free sizes are backed symbols whose guards go to the recording.

Owns: the subclass that Dynamo builds while anyshape captures, and nothing else. What a question means and
whether it is a decision, a predicate or a requirement is settled by the `Recording` it is given.

A free dim is an ordinary *backed* symbol to AOTAutograd and Inductor (they plan with its hint, and never raise a
data-dependent error), but every question about it comes here first: a `guard_or_*` question gets its general answer, a
raw question gets the hint's answer, and either is recorded instead of becoming a guard on the size that was seen.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import sympy
import torch
from torch._dynamo.source import TensorProperty, TensorPropertySource
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    ShapeGuard,
    _ShapeGuardsHelper,
    free_unbacked_symbols,
)
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic import dim_marks, gradient_formulas
from anyshape._torch.symbolic.enclosing_try import errors_are_caught
from anyshape._torch.symbolic.possible_sizes import PossibleSizes
from anyshape.assumptions.answers import InputRecord
from anyshape.assumptions.recording import STAND_INS, Recording
from anyshape.assumptions.stride_order import symbolic_strides
from anyshape.declaration import Dim
from anyshape.declaration.policy import TensorPolicy

# State of a ShapeEnv that learning a fact changes; saved and put back when a node is traced a second time.
_LEARNT = ("replacements", "axioms", "var_to_range", "divisible", "guards", "deferred_runtime_asserts", "baked")

SHARE_MEMORY = "__anyshape_share_memory"  # what guards call to see that inputs written to have memory of their own
SAME_FLOAT = "__anyshape_same_float"  # what guards call where a float argument is a constant of the program
IS_EXPRESSIBLE = "__anyshape_is_expressible"  # what guards call where a program depends on questions about a float
_EXPRESSIBLE = ValueRanges(sympy.Integer(-(1 << 53)), sympy.Integer(1 << 53))
_FROM_ZERO = ValueRanges(sympy.Integer(0), int_oo)
_TWO_OR_MORE = sympy.Symbol("_two_or_more", integer=True, positive=True) + 1
# What the text of an expression calls: Python's own would ask which is the less.
_BOUNDS = (sympy.Ne, sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le)
_MOST_CASES = 5  # symbols in a question worth a case distinction


class FreeShapeEnv(ShapeEnv):
    """The ShapeEnv of one capture."""

    knows_divisors = True  # loops over sizes with a known divisor have no remainder

    def __init__(self, *, recording: Recording, **settings: Any) -> None:
        self.recording = recording
        self._settled: dict[sympy.Basic, sympy.Basic] = {}
        self._open: set[sympy.Basic] = set()  # what was not settled by what was known at this version
        self._settled_version: tuple[int, int] | None = None
        self._possible: PossibleSizes | None = None
        self._ragged: dict[sympy.Basic, sympy.Basic] = {}  # sizes of nested tensors, by those of what they wrap
        self.taken_on_trust = False  # a tensor is given the sizes that it has
        self.baked: dict[sympy.Basic, sympy.Integer] = {}  # computed sizes (`n * m`) that are a number in this program
        settings.update(specialize_zero_one=False, duck_shape=False)
        self._making: tuple[str, Any] | None = None  # the input that is made fake now: its source and the tensor
        super().__init__(**settings)
        recording.env = self
        recording.declared.divides_with(floor_div=FloorDiv, mod=Mod)

    # -- inputs ------------------------------------------------------------------------------------------------

    def _create_symbolic_sizes_strides_storage_offset(
        self,
        ex_size: Sequence[int],
        ex_stride: Sequence[int],
        ex_storage_offset: int,
        is_dim_dynamic: Sequence[bool],
        source: Any,
        *,
        symbolic_context: Any = None,
        **rest: Any,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        dynamic = getattr(symbolic_context, "dynamic_sizes", None)
        numbers = (*ex_size, *ex_stride, ex_storage_offset)
        cache = getattr(symbolic_context, "shape_env_to_source_to_symbol_cache", {}).get(id(self), {})
        if dynamic is None or any(type(n) is not int for n in numbers) or source.name in cache:
            made = super()._create_symbolic_sizes_strides_storage_offset(
                ex_size,
                ex_stride,
                ex_storage_offset,
                is_dim_dynamic,
                source,
                symbolic_context=symbolic_context,
                **rest,
            )
            # A nested tensor begins where its memory does; that is checked while it is made (meta_utils.py).
            return made if not _is_ragged(ex_size) else (*made[:2], ex_storage_offset)
        static = [d is DimDynamic.STATIC for d in dynamic]
        policy = self._policy(source, dynamic, ex_size)
        if policy is not None:
            static = [d.value is not None or (s and d.kind == "any") for d, s in zip(policy.dims, static, strict=True)]
        if all(static) and len(dynamic) > 0:
            return tuple(ex_size), tuple(ex_stride), ex_storage_offset

        def free(kind: TensorProperty, index: int | None, actual: int, dim: Dim | None = None) -> sympy.Symbol:
            return self._free_symbol(TensorPropertySource(source, kind, index), actual, symbolic_context, dim)

        dims = policy.dims if policy is not None else (None,) * len(dynamic)
        sizes: list[sympy.Expr] = [
            sympy.Integer(n) if static[i] else free(TensorProperty.SIZE, i, n, dims[i]) for i, n in enumerate(ex_size)
        ]
        if policy is not None and policy.layout == "any":
            strides = [free(TensorProperty.STRIDE, i, n) for i, n in enumerate(ex_stride)]
            self.recording.loose_strides.update(strides)
            if any(d.oblivious for d in policy.dims):
                self.recording.oblivious.symbols.update(strides)
        else:
            strides = symbolic_strides(
                ex_size, ex_stride, sizes, lambda i: free(TensorProperty.STRIDE, i, ex_stride[i])
            )
        offset = free(TensorProperty.STORAGE_OFFSET, None, ex_storage_offset)
        if policy is not None:
            for fact in self.recording.declared.bind(policy, sizes):
                self.recording.know(fact.expr, at_the_door=fact.at_the_door and self.recording.top)
        node = lambda expr: self.create_symintnode(expr, hint=int(expr.xreplace(self.backed_var_to_val)))
        return tuple(map(node, sizes)), tuple(map(node, strides)), node(offset)

    @contextlib.contextmanager
    def making(self, tensor: Any, source: Any) -> Iterator[None]:
        """An input is made fake inside, and this is the tensor it is made from."""
        before, self._making = self._making, (source.name, tensor) if source is not None else None
        try:
            yield
        finally:
            self._making = before

    def _policy(self, source: Any, dynamic: Sequence[Any], sizes: Sequence[int]) -> TensorPolicy | None:
        """What was declared of an input: by its path, by marks on it, or for all of them."""
        if self._making is None or self._making[0] != source.name:
            return None  # what a view is a view of
        tensor = self._making[1]
        declared = self.recording.declared
        known = declared.policy(tensor, len(sizes))
        if known is not None and self.recording.top:
            self.recording.let_in.add(source.name)
        return dim_marks.policy(
            tensor,
            source.name,
            known,
            fixed=[d is DimDynamic.STATIC for d in dynamic],
            unbacked=[d is DimDynamic.UNBACKED for d in dynamic],
            layout=declared.layout,
            oblivious=declared.declaration.semantics == "oblivious",
        )

    def _free_symbol(self, source: Any, actual: int, context: Any, dim: Dim | None = None) -> sympy.Symbol:
        oblivious = dim is not None and dim.oblivious
        wanted = None if dim is None else self.recording.declared.hint(dim)
        hint = self.recording.hint_for(source, actual, declared=wanted, oblivious=oblivious)
        symbol = super().create_symbol(
            hint,
            source,
            DimDynamic.DYNAMIC,
            None,
            positive=None,
            do_not_specialize_zero_one=True,
            symbolic_context=context,
        )
        if symbol in self.recording.symbols:
            return symbol  # AOTAutograd makes the input fake once more, and what was learnt of it holds
        self.var_to_range[symbol] = _FROM_ZERO
        self.recording.add_symbol(symbol, source, actual=actual, hint=hint)
        if oblivious:
            self.recording.oblivious.symbols.add(symbol)
        return symbol

    def create_unspecified_symbol(
        self, val: Any, source: Any, dynamic_dim: Any = DimDynamic.DUCK, *args: Any, **kwargs: Any
    ) -> Any:
        symbol = super().create_unspecified_symbol(val, source, dynamic_dim, *args, **kwargs)
        if isinstance(val, (int, float)) and isinstance(symbol, sympy.Symbol):
            self.recording.add_symbol(symbol, source, actual=val, hint=val)
            if type(val) is int:
                self.var_to_range[symbol] &= _EXPRESSIBLE
        return symbol

    # -- questions ---------------------------------------------------------------------------------------------

    def evaluate_expr(
        self,
        orig_expr: sympy.Basic,
        hint: Any = None,
        fx_node: Any = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        **rest: Any,
    ) -> sympy.Basic:
        orig_expr = self._in_own_sizes(orig_expr)
        if not self.recording.owns(orig_expr):
            if fallback_value is not None and self.recording.drops_dims():
                raise _ends_the_graph()  # whether an unbacked size is 1 decides the rank: no answer holds
            hint = hint if orig_expr.free_symbols else None  # that of a constant may be of the size it was planned for
            value = super().evaluate_expr(orig_expr, hint, fx_node, size_oblivious, fallback_value, **rest)
            if self._making is not None and isinstance(orig_expr, sympy.Eq) and bool(value):
                self._note_ragged(orig_expr)
            return value
        if self.recording.silent:
            return self.recording.truth(orig_expr)  # which cannot be other than what is settled, and is told at once
        known = self.settled(orig_expr)
        if known is not None:
            return known
        general = None if fallback_value is None else sympy.sympify(bool(fallback_value))
        if self._suppress_guards_tls():
            # AOTAutograd asks so whether strides differ from those that Inductor chose, told for the hints.
            for_hints = general is None or self.recording.phase != "trace"
            return self.recording.truth(orig_expr) if for_hints else general
        if general is not None and self.recording.phase == "lowering" and _makes_sizes():
            return general
        told = gradient_formulas.answer(orig_expr, self.recording.truth, self.recording.locate)
        if told is not None:
            return told
        return self.recording.answer(orig_expr, general)

    def _note_ragged(self, fact: sympy.Eq) -> None:
        """The number of parts of a nested tensor, and a size of its parts, are sizes of the tensors that it wraps."""
        for outer, inner in (fact.args, fact.args[::-1]):
            if outer.is_Symbol and inner.free_symbols and self.recording.owns(inner):
                self._ragged[outer] = inner

    def _in_own_sizes(self, expr: sympy.Basic) -> sympy.Basic:
        return expr.xreplace(self._ragged) if self._ragged and isinstance(expr, sympy.Basic) else expr

    def guard_or_defer_runtime_assert(self, orig_expr: Any, msg: str, fx_node: Any = None) -> bool:
        orig_expr = self._in_own_sizes(orig_expr)
        if not self.recording.owns(orig_expr):
            told = self._maybe_evaluate_static(orig_expr) is not None  # an assertion made before may have said it
            if not told and self.recording.node is not None and (_may_be_one(orig_expr) or _broadcasts(orig_expr)):
                raise _ends_the_graph()  # an unbacked size may be 1 as well, and is stretched then
            if not told and self.recording.node is not None and errors_are_caught():
                raise _ends_the_graph()  # the function goes on where it does not hold
            if not told:
                self.recording.insisted_on(orig_expr)
            return super().guard_or_defer_runtime_assert(orig_expr, msg, fx_node)
        known = None if self.recording.silent else self.settled(orig_expr)
        if known is not None:
            return bool(known)
        return self.recording.require(orig_expr)

    def holds(self, fact: sympy.Basic) -> bool:
        """Whether a fact holds at the sizes at hand, for this program to be used where it does."""
        known = self.settled(fact)
        if known is not None:
            return bool(known)
        with self.recording.assume_true():
            return bool(self.recording.answer(fact, None))

    def evaluate_guards_expression(self, code: str, args: Sequence[object]) -> bool:
        """Inductor's cache asks whether an entry made under these facts may be used: if so, they are relied on."""
        with self.recording.assume_true(), registry.entered("relying"):
            return bool(super().evaluate_guards_expression(code, args))

    def replace(self, expr: Any) -> Any:
        """With what is known put in; torch's own puts in what is known of single symbols."""
        expr = super().replace(expr)
        return expr.xreplace(self.baked) if self.baked else expr

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        """A number out of the data is never taken for a size that it is said to equal.

        AOTAutograd would find the size for both sides of the assertion that says so, which holds then (2.11 to 2.15).
        """
        if not (self.recording.owns(tgt) and free_unbacked_symbols(a)):
            super()._set_replacement(a, tgt, msg)

    def _rename_unbacked_to(self, orig_s: sympy.Expr, new_s: sympy.Expr) -> None:
        """An unbacked size is traced twice, and the second time what is known of it may be told for 2 and more."""
        if orig_s in self.var_to_range and new_s in self.var_to_range:
            self.var_to_range[orig_s] |= self.var_to_range[new_s]
        super()._rename_unbacked_to(orig_s, new_s)

    def settled(self, expr: sympy.Basic) -> sympy.Basic | None:
        """The value of `expr` that follows from what is known, with no assumption about 0 and 1; else None."""
        if expr in self._settled:
            return self._settled[expr]
        version = self._version_counter, len(self.recording.hints)
        if version != self._settled_version:
            self._settled_version = version
            self._open.clear()
            # The solver is asked about declared invariants, and sizes that contradict one are not told apart here.
            if self.recording.declared.invariants:
                self._possible = None
            else:
                self._possible = self._possible or PossibleSizes(self)
                self._possible.grow()
        if expr in self._open:
            return None
        value = self._derived(expr)
        if value is None:
            self._open.add(expr)
        else:
            self._settled[expr] = value
        return value

    def _derived(self, expr: sympy.Basic) -> sympy.Basic | None:
        if (self._possible is not None and self._possible.leave_open(expr)) or _has_quotients(expr):
            return None
        value = self._maybe_evaluate_static(expr)
        if value is None and expr.is_Boolean:
            expr = self.simplify(expr)
            ranges = {s: self.var_to_range[s] for s in expr.free_symbols if s in self.var_to_range}
            with contextlib.suppress(ZeroDivisionError):  # `n // 0` has no value: not settled
                value = self._by_cases(expr, ranges)
        if value is None and self.recording.declared.invariants and isinstance(expr, sympy.logic.boolalg.Boolean):
            implied = self.recording.implied(self.simplify(expr))
            value = None if implied is None else sympy.sympify(implied)
        return value

    def settled_from_two(self, expr: sympy.Basic) -> sympy.Basic | None:
        """The one answer of all sizes from 2 on, given sizes or computed ones; None if they differ."""
        expr = self.simplify(expr)
        ranges = []
        for symbol in expr.free_symbols:
            bounds = self.var_to_range[symbol]
            if bounds.lower in (0, 1):
                bounds = ValueRanges(sympy.Integer(2), bounds.upper) if bounds.upper > 1 else bounds
            ranges.append((symbol, bounds))
        value = self._maybe_evaluate_static(expr, var_to_range=tuple(ranges))
        if value is None and isinstance(expr, sympy.Rel) and any(side.is_Integer for side in expr.args):
            size = next(side for side in expr.args if not side.is_Integer)
            value = None if isinstance(size, (Mod, PythonMod)) else expr.xreplace({size: _TWO_OR_MORE})
        return value if value in (sympy.true, sympy.false) else None

    def named_alike(self, expr: sympy.Basic) -> sympy.Basic:
        """The same question asked before and after it was learnt that what is divided is not negative is one."""
        return expr.replace(Mod, PythonMod) if expr.has(Mod) else expr

    def _by_cases(self, expr: sympy.Basic, ranges: dict[sympy.Basic, Any]) -> sympy.Basic | None:
        """Try sizes at 0 and from 1 on: most questions about strides have one answer in both."""
        value = self._maybe_evaluate_static(expr, var_to_range=tuple(ranges.items()))
        if value is not None or len(ranges) > _MOST_CASES:
            return value
        for symbol in sorted(ranges, key=str):
            if ranges[symbol].lower != 0:
                continue
            rest = {s: r for s, r in ranges.items() if s != symbol}
            at_zero = self._by_cases(expr.xreplace({symbol: sympy.Integer(0)}), rest)
            if at_zero is None:
                return None
            above = ValueRanges(sympy.Integer(1), ranges[symbol].upper)
            from_one = self._by_cases(expr, {**ranges, symbol: above})
            return from_one if from_one is not None and bool(from_one) == bool(at_zero) else None
        return None

    def learn(self, fact: sympy.Basic, *, guard: bool) -> None:
        """From here on `fact` holds: simplify with it, and (for a predicate) let Inductor's cache key see it."""
        for weaker in _by_divisors(fact):
            self._maybe_guard_rel(weaker)
            self.axioms.update(dict(self.get_implications(self.simplify(weaker))))
        self._maybe_guard_rel(fact)
        for symbol in fact.free_symbols & self.var_to_range.keys():
            self._narrow(symbol, fact)
        if isinstance(fact, sympy.Eq) and fact.rhs.is_Integer and not fact.lhs.is_Symbol:
            self.baked[fact.lhs] = fact.rhs
            self._replacements_changed()
        if guard:
            self.guards.append(ShapeGuard(fact, self._get_sloc(), size_oblivious=False))
        self.axioms.update(dict(self.get_implications(self.simplify(fact))))
        self._changed()

    def forget(self, facts: Iterable[sympy.Basic]) -> set[sympy.Basic]:
        """From here on these are not known; gives those that could be forgotten.

        Bounds are, unless a size has become a number by them.
        """
        gone = {f for f in facts if isinstance(f, _BOUNDS)}
        sizes = {size for f in gone for s in f.free_symbols for size in (s, *self.replace(s).free_symbols)}
        sizes |= {s for s in self.replacements if not sizes.isdisjoint(self.replace(s).free_symbols)}
        if not all(self.recording.owns(s) and self.recording.symbols[s].kind == "size" for s in sizes):
            return set()
        if not all(self.replace(s).is_Symbol for s in sizes):
            return set()
        self.var_to_range.update(dict.fromkeys(sizes, _FROM_ZERO))
        for fact in gone:
            for axiom, _ in (*self.get_implications(fact), *self.get_implications(self.simplify(fact))):
                self.axioms.pop(axiom, None)
        self.guards[:] = [g for g in self.guards if g.expr not in gone]
        getattr(ShapeEnv._maybe_guard_rel, "cache_clear", lambda: None)()
        known = (self.recording.predicates, self.recording.requirements, self.recording.facts)
        for answer in [a for answers in known for a in answers.values()]:
            if answer.fact not in gone and not sizes.isdisjoint(answer.fact.free_symbols):
                self.learn(answer.fact, guard=False)
        self._settled.clear()
        self._open.clear()
        self._settled_version = self._possible = None
        self._changed()
        self._replacements_changed()
        return gone

    def _narrow(self, symbol: sympy.Symbol, fact: sympy.Basic) -> None:
        """`n <= 1` and `n != 0` make 1 of it: torch itself narrows no range for a `!=` (symbolic_shapes.py)."""
        bounds = self.var_to_range[symbol]
        if fact == sympy.Ne(symbol, bounds.lower) and bounds.lower < bounds.upper:
            bounds = self.var_to_range[symbol] = ValueRanges(bounds.lower + 1, bounds.upper)
        if bounds.lower == bounds.upper and symbol not in self.replacements:
            self._maybe_guard_rel(sympy.Eq(symbol, bounds.lower))

    @contextlib.contextmanager
    def planned(self) -> Iterator[None]:
        """The backend plans for the hints that were declared, and for no size of 0 or 1 where there are more.

        Inductor sorts the ranges of a GPU kernel by what they are for the hints, and takes `m` and `m * n` for each
        other where both are 1 (codegen/simd.py, 2.11 to 2.15): elements are left out then.
        """
        planned = {**self._more_than_one(), **self.recording.declared.planned()}
        before = {s: self.backed_var_to_val[s] for s in planned if s in self.backed_var_to_val}
        self.backed_var_to_val.update({s: sympy.Integer(planned[s]) for s in before})
        try:
            yield
        finally:
            self.backed_var_to_val.update(before)

    @contextlib.contextmanager
    def as_captured(self) -> Iterator[None]:
        """What is asked inside is about the program, and is told for the sizes that it was captured for."""
        planned = dict(self.backed_var_to_val)
        self.backed_var_to_val.update({s: sympy.sympify(n) for s, n in self.recording.hints.items() if s in planned})
        try:
            yield
        finally:
            self.backed_var_to_val.update({s: n for s, n in planned.items() if n in self.var_to_range.get(s, (n,))})

    def _update_var_to_range(self, symbol: sympy.Symbol, vr: Any, *args: Any, **kwargs: Any) -> None:
        """What is learnt while code is planned for another size holds of the size that the capture is for."""
        if symbol in self.recording.hints and self.backed_var_to_val.get(symbol, vr.lower) not in vr:
            self.backed_var_to_val[symbol] = sympy.sympify(self.recording.hints[symbol])
        super()._update_var_to_range(symbol, vr, *args, **kwargs)

    def _more_than_one(self) -> dict[sympy.Basic, int]:
        sizes = {s for s, record in self.recording.symbols.items() if record.kind == "size"}
        small = {s: STAND_INS[0][int(n)] for s, n in self.recording.hints.items() if s in sizes and n in STAND_INS[0]}
        return {s: n for s, n in small.items() if n in self.var_to_range[s] and s not in self.replacements}

    def evaluate_symexpr(self, code: str) -> Any:
        """What Inductor says of strides stays an expression of the sizes (see `saved_strides`)."""
        with registry.entered("relying"):
            return self.deserialize_symexpr(code)

    @contextlib.contextmanager
    def undo_unless_kept(self) -> Iterator[Callable[[], None]]:
        """Facts learnt inside are forgotten, unless the function yielded here is called."""
        saved = {name: getattr(self, name).copy() for name in _LEARNT}
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True

        try:
            yield keep
        finally:
            if not kept:
                for name, value in saved.items():
                    setattr(self, name, value)
                self._settled.clear()
                self._open.clear()
                self._settled_version = self._possible = None
                self._changed()
                self._replacements_changed()
                self.fake_tensor_cache.clear()
                # torch remembers which facts it has learnt, and would not learn one again that was forgotten.
                getattr(ShapeEnv._maybe_guard_rel, "cache_clear", lambda: None)()

    def _changed(self) -> None:
        """What is known has changed; torch takes it for the same when no size is replaced by another (`_get_key`)."""
        self._update_version_counter()
        self._version_counter += 1

    def _replacements_changed(self) -> None:
        """What a SymNode remembers of its expression is not up to date (torch 2.13 on)."""
        if hasattr(self, "_replacements_version_counter"):
            self._replacements_version_counter += 1

    # -- guards ------------------------------------------------------------------------------------------------

    def produce_guards_verbose(
        self, placeholders: Sequence[Any], sources: Sequence[Any], source_ref: Any = lambda n: n.name, **rest: Any
    ) -> list[Any]:
        if rest.get("guards") is not None or any(isinstance(s, str) for s in sources):
            # Not for Dynamo: Inductor's cache writes down which sizes an entry was made for, and what is known of them
            # would make a truth of what has to be written.
            with self._as_if_nothing_were_known():
                return super().produce_guards_verbose(placeholders, sources, source_ref, **rest)  # type: ignore[no-any-return]
        langs = rest.get("langs", ("python", "verbose_python"))
        inputs = []
        for value, source in zip(placeholders, sources, strict=True):
            record = self._input_record(value, source, source_ref)
            if record is not None and not (_is_base(source) and self._is_never_asked(record)):
                inputs.append(record)
        call = self.recording.finish(inputs)
        exprs = [f"{SAME_FLOAT}({source_ref(s)}, {number!r})" for s, number in self.recording.exact_floats]
        asked = self._asked()
        for value, source in zip(placeholders, sources, strict=True):
            if isinstance(value, torch.SymInt) or (isinstance(value, torch.SymFloat) and value.node._expr in asked):
                exprs.append(f"{IS_EXPRESSIBLE}({source_ref(source)})")
        exprs += [call] if call else []
        if self.recording.apart:
            written, read = ("".join(f"{source_ref(s)}, " for s in each) for each in self.recording.apart)
            exprs.append(f"not {SHARE_MEMORY}(({written}), ({read}))")
        return [_ShapeGuardsHelper(list(exprs)) for _ in langs]

    @contextlib.contextmanager
    def _as_if_nothing_were_known(self) -> Iterator[None]:
        """A fact is not simplified by itself."""
        with mock.patch.multiple(self, baked={}, divisible=set()):
            self._changed()
            yield
        self._changed()

    def _asked(self) -> set[Any]:
        """The symbols that any question was about."""
        recording = self.recording
        asked = [a.expr for a in (*recording.predicates.values(), *recording.requirements.values())]
        asked += [e for n in recording.nodes for e in n.decisions] + list(recording.aot_decisions)
        return recording.compared.union(*(e.free_symbols for e in asked))

    def _is_never_asked(self, record: InputRecord) -> bool:
        """Whether no question was about these sizes: a view's base need not even be there then."""
        own = set().union(*(e.free_symbols for e in (*record.sizes, *record.strides)))
        return own.isdisjoint(self._asked())

    def _input_record(self, value: Any, source: Any, source_ref: Any) -> InputRecord | None:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return InputRecord("number", source_ref(source), (value.node._expr,), ())
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return None
        sizes, strides = tuple(map(_own_expr, value.shape)), tuple(map(_own_expr, value.stride()))
        if all(s.is_number for s in sizes):
            return None
        return InputRecord("tensor", source_ref(source), sizes, strides)


def _is_ragged(sizes: Sequence[Any]) -> bool:
    """Whether these are the sizes of a nested tensor: one of them is no number."""
    return any(isinstance(n, torch.SymInt) and n.node.is_nested_int() for n in sizes)


def _is_base(source: Any) -> bool:
    return getattr(source, "member", None) == "_base"


def _ends_the_graph() -> Exception:
    """What makes Dynamo break the graph before the call that asks; what follows sees the size as an input's."""
    return DataDependentOutputException(torch.ops.aten.sym_size.int)


_BROADCASTING = ("infer_size", "_broadcast_shapes", "_broadcast_in_dim_meta")
_RESHAPES = "torch._prims_common"  # its infer_size is what finds the -1 of a view


def _broadcasts(expr: sympy.Basic) -> bool:
    """Whether the code that asks compares sizes in order to broadcast."""
    if not isinstance(expr, sympy.Eq):
        return False
    frame: Any = sys._getframe(2)
    for _ in range(8):
        if frame is None or frame.f_code.co_name in _BROADCASTING:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name in _BROADCASTING and frame.f_globals["__name__"] != _RESHAPES


def _may_be_one(expr: sympy.Basic) -> bool:
    """Whether an unbacked size is said to be 1 or another: what may be broadcast (`einsum`)."""
    sides = [side for side in expr.args if isinstance(side, sympy.Eq)] if isinstance(expr, sympy.Or) else []
    return len(sides) == 2 and any(side.rhs == 1 and free_unbacked_symbols(side.lhs) for side in sides)


def _has_quotients(expr: sympy.Basic) -> bool:
    """Whether sizes are divided by sizes, as where sympy reduces a stride modulo another: torch has no range for it."""
    return any(power.exp.is_negative for power in expr.atoms(sympy.Pow))


def _own_expr(number: Any) -> sympy.Expr:
    """The expression a number was created with, before what was learnt since is put in its place."""
    return number.node._expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _makes_sizes() -> bool:
    """Whether the node being lowered has a size or an offset of its own in the graph: the code computes it then."""
    from torch._inductor.virtualized import V

    node = getattr(V.graph, "current_node", None)
    return node is not None and bool(node.meta.get("unbacked_bindings"))


def _by_divisors(fact: sympy.Basic) -> list[sympy.Basic]:
    """What is a multiple of 16 is one of 8, which is as many numbers as some processors take at once."""
    if not isinstance(fact, sympy.Eq) or not isinstance(fact.lhs, (Mod, PythonMod)) or fact.rhs != 0:
        return []
    number, of = fact.lhs.args
    return [sympy.Eq(fact.lhs.func(number, d), 0) for d in sympy.divisors(of)[1:-1]] if of.is_Integer else []


@repair(
    "torch.fx.experimental.symbolic_shapes:SYMPY_INTERP[min]",
    "torch.fx.experimental.symbolic_shapes:SYMPY_INTERP[max]",
    scope="relying",
    phase="lowering",
    kind="meaning",
    symptom="An expression of sizes that is read back asks which of two is the lesser.",
    cause="symbolic_shapes.py:SYMPY_INTERP has no min and max, and Python's compare.",
    cure="They are sym_min and sym_max.",
    goes="when SYMPY_INTERP has those",
    adds=True,
)
def without_questions(stock: Any, name: str) -> Any:
    function = {"min": torch.sym_min, "max": torch.sym_max}[name]
    return lambda *numbers: functools.reduce(function, numbers)
