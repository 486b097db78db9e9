"""The fuzzer finds what is wrong with anyshape, and makes it small.

Each fault of `faults` is put in, and programs are generated until one differs from eager that does not differ without
the fault; it is then shrunk. The bar is 25 of them within 2,000 programs, and 4 operations. `found.json` says which
program it was the last time: that one is tried first, and the hunt begins anew where it does not show the fault any
more. Faults that were not found say why where they stand. The quick ones run by default, the others with `-m slow`.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from faults import FAULTS, OF_NUMBERS, TARGETS, UNFOUND, WITH_INDUCTOR
from torch._inductor.utils import fresh_inductor_cache

from anyshape.fuzz import scalar_oracle, scalars
from anyshape.fuzz.case import Case
from anyshape.fuzz.generate import generate
from anyshape.fuzz.oracle import Target, judge
from anyshape.fuzz.shrink import shrink

SEED = 100
PROGRAMS = 2000
MOST_OPERATIONS = 4
ENOUGH = 25
FOUND: dict[str, int] = json.loads((pathlib.Path(__file__).parent / "found.json").read_text())
QUICK = ("no_new_key_is_admitted", "a_class_is_admitted_unverified")


def hunt(name: str) -> tuple[int, Case, str]:
    """Which program showed it, the shrunk one, and what differs."""
    target = TARGETS.get(name, Target())
    for number, case in _programs(FOUND.get(name)):
        with FAULTS[name]():
            kind = judge(case, target).kind
        if kind is None or judge(case, target).kind is not None:
            continue

        def fails(smaller: Case, kind: str = kind) -> bool:
            with FAULTS[name]():
                found = judge(smaller, target).kind
            return found == kind and judge(smaller, target).kind is None

        return number, shrink(case, fails, seconds=60), kind
    pytest.fail(f"{name} was not found in {PROGRAMS} programs")


def _programs(first: int | None) -> Iterator[tuple[int, Case]]:
    if first is not None:
        yield first, *generate(SEED, first - 1, first, most_steps=2)
    yield from enumerate(generate(SEED, 0, PROGRAMS, most_steps=2), 1)


def check(name: str) -> None:
    number, case, kind = hunt(name)
    print(f"{name}: program {number}, {kind}, {[s.op for s in case.steps]}")
    assert number <= PROGRAMS
    assert len(case.steps) <= MOST_OPERATIONS


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_and_made_small(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FOUND if n not in QUICK])
def test_a_rarer_fault_is_found_and_made_small(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.xfail(reason=why, strict=False)) for n, why in UNFOUND.items()]
)
def test_a_fault_that_was_not_found_so_far(name: str) -> None:
    check(name)


def test_there_are_faults_enough() -> None:
    assert FAULTS.keys() == FOUND.keys() | UNFOUND.keys()
    assert FOUND.keys().isdisjoint(UNFOUND)
    assert sum(number <= PROGRAMS for number in FOUND.values()) >= ENOUGH


@pytest.mark.parametrize("name", FAULTS)
def test_each_can_be_put_in(name: str) -> None:
    """What it replaces is still there, and is called as it was."""
    with FAULTS[name]():
        pass


NUMBERS_FOUND = {"a_negative_divisor_is_taken_for_one": 121}  # the number of the program that shows it
MOST_OF_NUMBERS = 500


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_fault_of_numbers_is_found(name: str) -> None:
    number = NUMBERS_FOUND[name]
    assert number < MOST_OF_NUMBERS
    (program,) = scalars.programs(SEED, number, number + 1)
    with fresh_inductor_cache(), OF_NUMBERS[name]():
        assert scalar_oracle.difference(program, WITH_INDUCTOR) is not None
    with fresh_inductor_cache():
        assert scalar_oracle.difference(program, WITH_INDUCTOR) is None
