"""Faults of admissions: local classes that are too wide, and code that leaves something out.

Each says which program shows it; `test_admission` puts it in and looks for a difference.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import sympy
from faults import replaced

from anyshape._torch.fake_runs import concrete, verify
from anyshape.admission import admission, admission_code
from anyshape.admission.local_classes import Kind, Kinds

FAULTS: dict[str, tuple[Any, str]] = {}  # what puts it in, and the program that shows it


def shown_by(program: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    def register(function: Callable[[], Iterator[None]]) -> None:
        FAULTS[function.__name__] = contextlib.contextmanager(function), program

    return register


def narrower(keep: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """Local classes of which only some facts are kept: they are too wide."""
    follow = verify.follow

    def widened(*args: Any, **kwargs: Any) -> Any:
        verdict = follow(*args, **kwargs)
        return verdict if verdict.facts is None else dataclasses.replace(verdict, facts=keep(verdict.facts))

    return replaced(verify, "follow", widened)


@shown_by("flat")
def a_local_class_is_every_size() -> Iterator[None]:
    with narrower(lambda facts: ()):
        yield


@shown_by("flat")
def the_last_question_of_a_local_class_is_forgotten() -> Iterator[None]:
    with narrower(lambda facts: facts[:-1]):
        yield


@shown_by("flat")
def the_first_question_of_a_local_class_is_forgotten() -> Iterator[None]:
    with narrower(lambda facts: facts[1:]):
        yield


@shown_by("flat")
def a_node_holds_where_its_kind_was_never_run() -> Iterator[None]:
    known = Kind.known

    def first(self: Kind, values: tuple[Any, ...]) -> Any:
        return known(self, values) or (self.classes[0] if self.classes else None)

    with replaced(Kind, "known", first):
        yield


@shown_by("flat")
def memory_is_not_compared() -> Iterator[None]:
    leaf = verify._leaf

    def blind(*args: Any) -> Any:
        found = leaf(*args)
        return None if found is not None and "memory" in found.predicted else found

    with replaced(verify, "_leaf", blind):
        yield


@shown_by("flat")
def that_a_size_is_0_is_no_part_of_a_local_class() -> Iterator[None]:
    with narrower(lambda facts: tuple(f for f in facts if not (isinstance(f, sympy.Eq) and 0 in f.args))):
        yield


@shown_by("normalized")
def a_local_class_that_differs_is_taken_to_hold() -> Iterator[None]:
    known = Kind.known

    def holding(self: Kind, values: tuple[Any, ...]) -> Any:
        local = known(self, values)
        return None if local is None else dataclasses.replace(local, difference=None)

    with replaced(Kind, "known", holding):
        yield


@shown_by("heads")
def the_code_admits_what_it_cannot_tell() -> Iterator[None]:
    with replaced(admission, "UNTOLD", -3):
        yield


@shown_by("parts")
def the_code_of_an_admission_leaves_out_predicates() -> Iterator[None]:
    with replaced(admission_code.Writer, "_answers", lambda self: ()):
        yield


@shown_by("flat")
def the_code_of_an_admission_leaves_out_nodes() -> Iterator[None]:
    with replaced(admission_code._UnitText, "lines", lambda self, short: []):
        yield


@shown_by("flat")
def sizes_of_a_kind_are_mixed_up() -> Iterator[None]:
    of = Kinds.of

    def mixed(self: Kinds, node: Any) -> Any:
        kind, own = of(self, node)
        return kind, own[::-1]

    with replaced(Kinds, "of", mixed):
        yield


@shown_by("flat")
def symbols_are_taken_for_positive() -> Iterator[None]:
    with replaced(concrete.TracedRun, "is_zero", lambda self, number: False):
        yield
