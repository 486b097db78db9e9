"""The fuzzer finds what is wrong with anyshape, and makes it small.

Each fault of `faults` is put in, and programs are generated until one differs from eager that does not differ without
the fault; it is then shrunk. The quick ones run by default, the others with `-m slow`.
"""

from __future__ import annotations

import pytest
from faults import FAULTS

from anyshape.fuzz.case import Case
from anyshape.fuzz.generate import generate
from anyshape.fuzz.oracle import Target, judge
from anyshape.fuzz.shrink import shrink

PROGRAMS = 2000
MOST_OPERATIONS = 4
QUICK = ("no_new_key_is_admitted", "a_capture_that_fails_is_an_error")


def hunt(name: str, programs: int = PROGRAMS, seed: int = 100) -> tuple[int, Case, str]:
    """How many programs it took, the shrunk one, and what differs."""
    target = Target()
    for number, case in enumerate(generate(seed, 0, programs, most_steps=2), 1):
        with FAULTS[name]():
            kind = judge(case, target).kind
        if kind is None or judge(case, target).kind is not None:
            continue

        def fails(smaller: Case, kind: str = kind) -> bool:
            with FAULTS[name]():
                found = judge(smaller, target).kind
            return found == kind and judge(smaller, target).kind is None

        return number, shrink(case, fails, seconds=120), kind
    pytest.fail(f"{name} was not found in {programs} programs")


def check(name: str) -> None:
    number, case, kind = hunt(name)
    print(f"{name}: program {number}, {kind}, {[s.op for s in case.steps]}")
    assert len(case.steps) <= MOST_OPERATIONS


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_and_made_small(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FAULTS if n not in QUICK])
def test_a_rarer_fault_is_found_and_made_small(name: str) -> None:
    check(name)


def test_there_are_faults_enough() -> None:
    assert len(FAULTS) >= 25
