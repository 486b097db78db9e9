"""The registry of repairs: the form of a declaration, the order, what is refused, what is entered and put back."""

from __future__ import annotations

import ast
import collections
import itertools
import json
import pathlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from anyshape import cli, repair_table
from anyshape._torch.capture.rules import Table
from anyshape._torch.repairs import registry as repairs
from anyshape._torch.repairs.registry import Place, repair

SOURCES = pathlib.Path(repairs.__file__).parents[1]
PHASES = ("capture", "fake run", "AOT", "lowering", "codegen", "run time", "export", "load")


class Owner:
    def method(self) -> str:
        return "stock"

    value = 1


table: dict[str, Any] = {"known": 1}
ABOUT: Any = {"phase": "capture", "broken": "2.11", "symptom": "s", "cause": "c", "cure": "c", "goes": "g"}
METHOD = Place("test:Owner.method", lambda: (Owner, "method"))


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test declares is forgotten after it."""
    before = dict(repairs._all)
    yield
    repairs._all.clear()
    repairs._all.update(before)
    repairs._plan.cache_clear()


def declared(name: str, *targets: Any, **options: Any) -> Any:
    def function(stock: Any) -> Any:
        return lambda self: f"{name} {stock(self)}"

    function.__name__ = name
    options = {"scope": "test", **ABOUT, **options}
    return repair(*targets, **options)(options.pop("function", function))


def test_repairs_of_one_name_stand_on_one_another_as_they_say() -> None:
    declared("outer", METHOD, over=("test_repairs.inner",))
    declared("inner", METHOD)
    with repairs.entered("test"):
        assert Owner().method() == "outer inner stock"
    assert Owner().method() == "stock"


def test_two_repairs_of_one_name_in_no_order_are_refused() -> None:
    declared("one", METHOD)
    declared("other", METHOD)
    with (
        pytest.raises(ValueError, match=r"test_repairs\.other and test_repairs\.one both replace test:Owner\.method"),
        repairs.entered("test"),
    ):
        pass


def test_a_circle_is_refused() -> None:
    declared("one", METHOD, over=("test_repairs.other",))
    declared("other", METHOD, over=("test_repairs.one",))
    with pytest.raises(ValueError, match="in a circle"), repairs.entered("test"):
        pass


def test_a_name_is_declared_once_and_a_place_is_named_once() -> None:
    declared("one", METHOD)
    with pytest.raises(ValueError, match="declared twice"):
        declared("one", METHOD)
    with pytest.raises(ValueError, match="names a place twice"):
        declared("two", "torch:compile", "torch:compile")


def test_a_fault_has_versions_and_a_cause() -> None:
    with pytest.raises(ValueError, match="versions and a cause"):
        declared("one", METHOD, broken="")


def test_what_is_absent_is_skipped_or_raises() -> None:
    declared("skipped", "torch.nowhere:name", "torch:no_such_name", absent="skip")
    with repairs.entered("test"):
        assert repairs._all["test_repairs.skipped"].status == "absent"
    declared("raises", "torch:no_such_attribute")
    with pytest.raises(
        AttributeError, match=r"no torch:no_such_attribute, which anyshape replaces \(test_repairs\.raises\)"
    ):
        with repairs.entered("test"):
            pass


def test_what_is_not_needed_is_left_alone() -> None:
    declared("unneeded", METHOD, needed=lambda: False)
    with repairs.entered("test"):
        assert Owner().method() == "stock"
    assert repairs._all["test_repairs.unneeded"].status == "not needed"


def test_all_is_put_back_when_one_cannot_be_entered() -> None:
    def fails(stock: Any) -> Any:
        raise RuntimeError("no")

    declared("one", METHOD)
    repair(Place("test:Owner.value", lambda: (Owner, "value")), scope="test", **ABOUT)(fails)
    before = vars(Owner)["method"]
    with pytest.raises(RuntimeError, match="no"), repairs.entered("test"):
        pass
    assert vars(Owner)["method"] is before


def test_entries_are_put_back_and_what_was_added_meanwhile_is_dropped() -> None:
    known = Place("test:table[known]", lambda: (table, "known"))
    new = Place("test:table[new]", lambda: (table, "new"))

    def entry(stock: Any, key: str) -> Any:
        return key.upper()

    repair(known, new, scope="test", adds=True, **ABOUT)(entry)
    with repairs.entered("test"):
        table["by torch"] = 2
        assert table == {"known": "KNOWN", "new": "NEW", "by torch": 2}
    assert table == {"known": 1}


def test_a_method_that_is_inherited_is_inherited_again() -> None:
    class Sub(Owner):
        pass

    declared("one", Place("test:Sub.method", lambda: (Sub, "method")))
    with repairs.entered("test"):
        assert Sub().method() == "one stock" and Owner().method() == "stock"
    assert "method" not in vars(Sub)


def test_another_thread_sees_what_was_there_before() -> None:
    declared("one", METHOD)
    seen: list[str] = []
    with repairs.entered("test"):
        thread = threading.Thread(target=lambda: seen.append(Owner().method()))
        thread.start()
        thread.join()
        assert (Owner().method(), seen) == ("one stock", ["stock"])


def test_what_is_shared_holds_until_the_last_leaves() -> None:
    declared("one", METHOD, shared=True)
    first, second = repairs.entered("test"), repairs.entered("test")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert Owner().method() == "one stock"
    second.__exit__(None, None, None)
    assert Owner().method() == "stock"


def test_options_of_a_scope_reach_who_asks_for_them() -> None:
    def asked(stock: Any, *, word: str) -> Any:
        return lambda self: word

    repair(METHOD, scope="test", **ABOUT)(asked)
    with repairs.entered("test", word="hello", other=1):
        assert Owner().method() == "hello"


def test_a_repair_can_be_left_out() -> None:
    declared("one", METHOD)
    with repairs.without("test_repairs.one"), repairs.entered("test"):
        assert Owner().method() == "stock"
    with repairs.entered("test"):
        assert Owner().method() == "one stock"
    with pytest.raises(KeyError, match="no repair is called"), repairs.without("test_repairs.none"):
        pass


@pytest.mark.parametrize("one", repairs.declared(), ids=lambda one: one.name)
def test_a_declaration_says_all(one: repairs.Repair) -> None:
    assert one.phase in PHASES
    assert one.upstream == "unfiled" or re.fullmatch(r"#\d+", one.upstream)
    assert not one.broken or re.fullmatch(r"2\.\d+(-2\.\d+)?", one.broken)
    for text in (one.symptom, one.cause, one.cure, one.goes):
        assert text and "\n" not in text and len(text) < 140
    assert one.goes.split()[0] in ("when", "with", "never:")
    assert all(isinstance(f.text, str) for f in one.places)
    known = {r.name for r in repairs.declared()}
    assert set(one.over) <= known
    for other in re.findall(r"with `(\w+\.\w+)`", one.goes):
        assert other in known


def test_there_is_no_other_way_to_change_torch() -> None:
    """Names of torch's are replaced in the registry alone; what is by itself is declared there too."""
    found: collections.Counter[str] = collections.Counter()
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("mock.patch.object", "mock.patch.dict"):
                found[path.stem] += 1
    assert dict(found) == KNOWN


# Attributes of values and classes of our own.
KNOWN: dict[str, int] = {"gpu_kernels": 1, "reshape_strides": 1, "trial": 1}


def test_no_place_is_replaced_by_two_repairs_in_no_order() -> None:
    """By what is there, not by how it is written."""
    by_name = {one.name: one for one in repairs.declared()}

    def under(one: repairs.Repair) -> set[str]:
        return set(one.over).union(*(under(by_name[name]) for name in one.over))

    wanted: dict[Any, list[repairs.Repair]] = collections.defaultdict(list)
    for one in by_name.values():
        for place in one.held():
            assert place.found is not None
            wanted[id(place.found[0]), place.found[1]].append(one)
    for known in wanted.values():
        for lower, upper in itertools.combinations(known, 2):
            assert lower.name in under(upper), (lower.name, upper.name)


OPTIONS: dict[str, Any] = {
    "noted": [],
    "make_recording": None,
    "rules": (Table({}),),
    "whole": True,
    "facts": "",
    "frozen": torch.nn.Module(),
    "exporting": False,
    "floats": frozenset(),
    "static": False,
    "abandon": KeyError,
    "env": None,
    "count": len,
    "broke_off": None,
    "kept": [],
    "recordings": [],
    "entries": [],
    "kernels": {},
    "thread": 0,
    "observer": None,
    "results": None,
    "ours": (),
}


def entered() -> list[repairs._Step]:
    """What each scope changes, but for settings, which torch puts back, and what is entered by itself.

    Of several repairs of one name the first to enter is here: its undo puts back what was there before all of them.
    """
    scopes = sorted({one.scope for one in repairs.declared()})
    steps = [step for scope in scopes for step in repairs._plan(scope) if not repairs._is_config(step.owner)]
    first: dict[Any, repairs._Step] = {}
    for step in steps:
        first.setdefault((step.repair.scope, id(step.owner), step.key), step)
    return list(first.values())


@pytest.mark.parametrize("scope", sorted({one.scope for one in repairs.declared() if not one.by_itself}))
def test_an_undo_that_is_missing_is_seen(scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every change in turn: without its undo it stays, and with it nothing does."""
    steps = [step for step in entered() if step.repair.scope == scope]
    before = [repairs._own(step.owner, step.key) for step in steps]
    put_back = repairs.put_back

    def left() -> list[str]:
        now = [repairs._own(step.owner, step.key) for step in steps]
        return [f"{step.repair.name} {step.key}" for step, a, b in zip(steps, before, now, strict=True) if a is not b]

    with repairs.entered(scope, **OPTIONS):
        changed = left()
    assert left() == []
    assert len(changed) == len(steps)
    for step, stock in zip(steps, before, strict=True):
        here = (step.owner, step.key)
        is_here = lambda owner, key, here=here: owner is here[0] and key is here[1]
        skips = lambda *given, is_here=is_here: None if is_here(*given[:2]) else put_back(*given)
        with monkeypatch.context() as patched:
            patched.setattr(repairs, "put_back", skips)
            with repairs.entered(scope, **OPTIONS):
                pass
        # What was not in a table before is dropped with all that came.
        is_new = isinstance(step.owner, dict) and stock is repairs.MISSING
        assert left() == ([] if is_new else [f"{step.repair.name} {step.key}"])
        put_back(*here, stock)
    assert left() == []


def test_the_command_lists_them(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "repairs.json"
    assert cli.run(["repairs", "--json", str(file)]) == 0
    said, written = capsys.readouterr().out, json.loads(file.read_text())
    assert [one["name"] for one in written] == [one.name for one in repairs.declared()]
    assert {one["status"] for one in written} <= {"applied", "absent", "not needed"}
    assert "noop_elimination_aliasing.remove_noop_ops" in said and repair_table.sentence(written) in said


def test_the_table_needs_no_other_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich.table", None)
    repair_table.show()
    said = capsys.readouterr().out
    assert re.search(
        r"^noop_elimination_aliasing\.remove_noop_ops +2\.11-2\.15 +lowering +applied +Of `b = ", said, re.MULTILINE
    )


def test_the_page_is_that_of_the_declarations() -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "repairs.md"
    assert page.read_text() == repair_table.page(), "run python -m anyshape.repair_table"
