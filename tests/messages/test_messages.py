"""The text of every error: what happened, where, the value, one fix."""

from __future__ import annotations

import pathlib
import pickle
import re

import pytest

from anyshape import errors
from anyshape._torch import versions

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_all_parts_of_a_message() -> None:
    error = errors.InvariantError(
        "seq % 8 == 0 does not hold", where="x.shape[1] (model.py:12)", value=7, before=16, fix="pad x to 8"
    )
    assert str(error) == (
        "AS020: seq % 8 == 0 does not hold\n"
        "  where: x.shape[1] (model.py:12)\n"
        "  value: 7 (before: 16)\n"
        "  fix:   pad x to 8\n"
        "  more:  python -m anyshape help AS020"
    )
    assert error.code == "AS020" and error.value == 7 and error.fix == "pad x to 8"


def test_only_what_happened() -> None:
    assert str(errors.NewBehaviorError("no")) == "AS006: no\n  more:  python -m anyshape help AS006"


def test_zero_is_a_value() -> None:
    assert "  value: 0\n" in str(errors.InvariantError("n >= 1 does not hold", value=0))


def test_a_fix_of_two_lines_is_aligned() -> None:
    assert "  fix:   a\n         b\n" in str(errors.DeclarationError("no", fix="a\nb"))


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.InvariantError, ValueError),
        (errors.DeclarationError, ValueError),
        (errors.UnsupportedTorchError, ImportError),
        (errors.MissingDependencyError, ImportError),
        (errors.NotCompilableError, TypeError),
        (errors.NewBehaviorError, RuntimeError),
    ],
)
def test_classes_and_pickling(kind: type[errors.Error], also: type[Exception]) -> None:
    error = kind("what", where="x.shape[0]", value=3, fix="this")
    assert isinstance(error, errors.Error) and isinstance(error, also)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and again.code == error.code


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(ValueError, match="AS999 is not a code"):
        errors.Error("what", code="AS999")


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.15.0a0+git1234", "2.15.1"])
def test_supported_torch(version: str) -> None:
    versions.check(version)


@pytest.mark.parametrize("version", ["2.10.1", "2.16.0", "1.13.1", "3.0", "unknown"])
def test_unsupported_torch(version: str) -> None:
    with pytest.raises(errors.UnsupportedTorchError) as caught:
        versions.check(version)
    assert str(caught.value) == (
        f"AS001: anyshape supports torch 2.11 to 2.15; you have {version}\n"
        "  where: torch.__version__\n"
        f"  value: {version}\n"
        '  fix:   pip install "torch>=2.11,<2.16"\n'
        "  more:  python -m anyshape help AS001"
    )


def test_missing_package() -> None:
    assert str(errors.missing("typer", needed_for="the command line")).splitlines()[:2] == [
        "AS002: the command line needs the package 'typer', which is not installed",
        '  fix:   pip install "typer"',
    ]
    assert 'pip install "anyshape[fuzz]"' in str(errors.missing("hypothesis", needed_for="fuzzing", extra="fuzz"))


def test_pickling_and_copying_are_refused_with_a_fix() -> None:
    assert str(errors.refuse_pickle("f")).splitlines()[:2] == [
        "AS004: a function compiled by anyshape cannot be pickled: its programs are machine code of this process (f)",
        "  fix:   pickle the original function or module, and call anyshape.compile on it where it is loaded",
    ]
    assert str(errors.refuse_deepcopy("f")).splitlines()[:2] == [
        "AS005: a function compiled by anyshape cannot be copied deeply: its programs belong to the original (f)",
        "  fix:   copy.deepcopy the original function or module, and call anyshape.compile on the copy",
    ]


@pytest.mark.parametrize("code", errors.CODES)
def test_every_code_has_a_page(code: str) -> None:
    page = (DOCS / "errors" / f"{code}.md").read_text()
    assert page.startswith(f"# {code}: {errors.CODES[code]}")
    assert (
        f"errors/{code}.md" in (DOCS / "errors" / "index.md").read_text()
        or f"({code}.md)" in (DOCS / "errors" / "index.md").read_text()
    )


def test_no_page_without_a_code() -> None:
    pages = {p.stem for p in (DOCS / "errors").glob("AS*.md")}
    assert pages == set(errors.CODES)
    assert all(re.fullmatch(r"AS\d{3}", code) for code in errors.CODES)
