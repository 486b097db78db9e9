"""The options of a declaration that are not shapes: invariants, layouts, hints, specializations and single words.

Owns how each is checked and read into values. What one says about another (a hint that breaks an invariant) is checked
here too, as far as it needs no solver.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anyshape.declaration.expression import Clause
from anyshape.declaration.path import canonical, read_path
from anyshape.declaration.place import Place, brief, in_clause, in_key, in_object, in_value, kind
from anyshape.declaration.reading import LARGEST, read_clause
from anyshape.declaration.shape import Shape, closest, read_shape

LAYOUTS: Final = ("contiguous", "dense", "example", "any")
SEMANTICS: Final = ("eager", "oblivious")
ON_NEW_BEHAVIOR: Final = ("compile", "eager", "error")
SPECIALIZE: Final = ("hot", "buckets", "never")
_MOST_COMBINATIONS: Final = 4096


def read_shapes(shapes: Any, signature: inspect.Signature | None) -> tuple[Shape, ...]:
    _check_mapping("shapes", shapes, 'shapes={"x": "batch seq"}')
    found: list[Shape] = []
    seen: dict[tuple[object, ...], str] = {}
    for key, text in (shapes or {}).items():
        place = _key_place("shapes", key, text, 'shapes={"x": "batch seq"}')
        path = read_path(place, signature)
        _check_twice(place, canonical(path, signature), seen, str(key))
        if not isinstance(text, str):
            words = " ".join(map(str, text)) if isinstance(text, (tuple, list)) else str(text)
            fix = f'shapes={{"{path}": "{words if len(words) < 60 else "batch seq"}"}}'
            in_object("shapes", key, text).refuse(f"a shape is a text, and this is {kind(text)}", fix=fix)
        found.append(read_shape(in_value("shapes", key, text), path))
    return tuple(found)


def read_clauses(option: str, clauses: Any, known: tuple[str, ...]) -> tuple[Clause, ...]:
    """A list of clauses over known names."""
    example = f'{option}=["1 <= {known[0] if known else "batch"}"]'
    if clauses is None:
        return ()
    if isinstance(clauses, str):
        place = Place(option, None, f'{option} = "', clauses, '"')
        place.refuse(f"{option} is a list of clauses, and this is one text", fix=f'{option}=["{clauses}"]')
    if not isinstance(clauses, (list, tuple)):
        in_object(option, None, clauses).refuse(
            f"{option} is a list of clauses, and this is {kind(clauses)}", fix=example
        )
    found: list[Clause] = []
    for i, text in enumerate(clauses):
        if not isinstance(text, str):
            in_object(option, i, text).refuse(f"a clause is a text, and this is {kind(text)}", fix=example)
        place = in_clause(option, i, text)
        clause = read_clause(place, origin=option)
        for name in clause.names:
            if name not in known:
                _refuse_unknown(place, name, known)
        found.append(clause)
    return tuple(found)


def read_specialize(specialize: Any, known: tuple[str, ...]) -> tuple[Clause, ...] | str:
    if specialize is None:
        return "hot"
    if isinstance(specialize, str):
        if specialize in SPECIALIZE:
            return specialize
        place = Place("specialize", None, 'specialize = "', specialize, '"')
        looks_like_clause = any(c in specialize for c in "<>=%")
        fix = (
            f'specialize=["{specialize}"]'
            if looks_like_clause
            else f'specialize="{closest(specialize, SPECIALIZE) or "hot"}"'
        )
        place.refuse('specialize is "hot", "buckets", "never", or a list of clauses', fix=fix, code="AS007")
    return read_clauses("specialize", specialize, known)


def read_layout(layout: Any, signature: inspect.Signature | None) -> tuple[str | None, dict[str, str]]:
    """The word for every tensor, if there is one, and those for single ones."""
    if layout is None:
        return None, {}
    if isinstance(layout, str):
        return _read_word(Place("layout", None, 'layout = "', layout, '"'), LAYOUTS), {}
    _check_mapping("layout", layout, 'layout={"x": "contiguous"}')
    found: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for key, word in layout.items():
        place = _key_place("layout", key, word, 'layout={"x": "contiguous"}')
        path = read_path(place, signature)
        if canonical(path, signature) in seen:
            place.refuse("this tensor is named twice", fix="one of the two", code="AS012")
        seen[canonical(path, signature)] = key
        if not isinstance(word, str):
            what = f"a layout is a word, and this is {kind(word)}"
            in_object("layout", key, word).refuse(what, fix=f'layout={{"{path}": "contiguous"}}', code="AS007")
        found[path.text] = _read_word(in_value("layout", key, word), LAYOUTS)
    return None, found


def read_word(option: str, word: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(word, str):
        what = f"{option} is a word, and this is {kind(word)}"
        in_object(option, None, word).refuse(what, fix=f'{option}="{allowed[0]}"', code="AS007")
    return _read_word(Place(option, None, f'{option} = "', word, '"'), allowed)


def read_switches(given: Mapping[str, Any]) -> None:
    """Refuse a text such as "no" where there is on or off: any text would be taken for on."""
    for name, value in given.items():
        if isinstance(value, str):
            what = f"{name} is True or False, and this is {kind(value)}"
            in_object(name, None, value).refuse(what, fix=f"{name}=False", code="AS007")


def read_hints(hints: Any, known: tuple[str, ...], clauses: Sequence[Clause]) -> dict[str, tuple[int, ...]]:
    _check_mapping("hints", hints, 'hints={"batch": 16}')
    found: dict[str, tuple[int, ...]] = {}
    for name, value in (hints or {}).items():
        place = _key_place("hints", name, value, 'hints={"batch": 16}')
        if not name.strip():
            place.refuse("an empty name", instead=known[0] if known else "batch")
        if name not in known:
            _refuse_unknown(place, name, known, whole=True)
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if not values:
            in_object("hints", name, value).refuse(
                "an empty list of hints", fix=f'hints={{"{name}": 64}}', code="AS007"
            )
        found[name] = tuple(_read_hint(name, value, v) for v in values)
        if len(set(found[name])) < len(values):
            twice = next(v for v in found[name] if found[name].count(v) > 1)
            unique = list(dict.fromkeys(found[name]))
            at = brief(value).find(str(twice), brief(value).find(str(twice)) + 1)
            fix = f'hints={{"{name}": {unique}}}'
            in_object("hints", name, value).refuse(
                f"{twice} is hinted twice", at, at + len(str(twice)), fix=fix, code="AS007"
            )
    for name, hinted in found.items():
        for value in hinted:
            _check_hint(name, value, found, clauses)
    return found


def _read_hint(name: str, given: Any, value: Any) -> int:
    place = in_object("hints", name, given)
    at = max(0, place.text.find(brief(value)))
    span = (at, at + len(brief(value)))
    if isinstance(value, (bool, str, float)) or not hasattr(value, "__index__"):
        number = str(value).split(".")[0]
        fix = f'hints={{"{name}": {number if number.isdigit() else 64}}}'
        place.refuse(f"a hint is a whole number, and this is {kind(value)}", *span, fix=fix, code="AS007")
    number_ = operator.index(value)
    if not 0 <= number_ <= LARGEST:
        fix = f'hints={{"{name}": {min(-number_, LARGEST) if number_ < 0 else 64}}}'
        place.refuse(f"no size is {number_}", *span, fix=fix, code="AS007")
    return number_


def _check_hint(name: str, value: int, hints: Mapping[str, tuple[int, ...]], clauses: Sequence[Clause]) -> None:
    """Some choice of the other hints must make each clause true; clauses over names without a hint are the solver's."""
    for clause in clauses:
        if name not in clause.names or any(n not in hints for n in clause.names):
            continue
        others = [n for n in clause.names if n != name]
        choices: Any = itertools.islice(itertools.product(*(hints[n] for n in others)), _MOST_COMBINATIONS)
        if any(clause.holds({name: value, **dict(zip(others, choice, strict=True))}) for choice in choices):
            continue
        given = in_object("hints", name, list(hints[name]) if len(hints[name]) > 1 else value)
        at = max(0, given.text.find(str(value)))
        rest = "".join(f", {n} = {', '.join(map(str, hints[n]))}" for n in others)
        good = nearest(value, clause, name, {n: hints[n][0] for n in others})
        fix = f'hints={{"{name}": {good}}}' if good is not None else f"leave the hint for {name} out: it is solved for"
        what = f"the hint {name} = {value}{rest} breaks {clause.text!r}"
        given.refuse(what, at, at + len(str(value)), fix=fix, code="AS012")


def nearest(value: int, clause: Clause, name: str, others: Mapping[str, int]) -> int | None:
    """The size nearest to this one for which the clause holds, if there is one near."""
    near = (v for distance in range(2048) for v in (value + distance, value - distance) if v >= 0)
    candidates = itertools.chain(near, (1 << p for p in range(40)))
    return next((v for v in candidates if clause.holds({**others, name: v})), None)


def _check_mapping(option: str, value: Any, example: str) -> None:
    if value is not None and not isinstance(value, Mapping):
        in_object(option, None, value).refuse(f"{option} is a dict, and this is {kind(value)}", fix=example)


def _key_place(option: str, key: Any, value: Any, example: str) -> Place:
    if not isinstance(key, str):
        place = Place(option, None, f"{option}[", brief(key), f"] = {brief(value)}")
        fix = f'{option}={{"args[{key}]": ...}}' if type(key) is int and key >= 0 and option != "hints" else example
        place.refuse(f"keys of {option} are texts, and this is {kind(key)}", fix=fix)
    return in_key(option, key, value)


def _check_twice(place: Place, path: tuple[object, ...], seen: dict[tuple[object, ...], str], key: str) -> None:
    for other, text in seen.items():
        if other == path:
            place.refuse(f"this tensor is declared twice: here, and as {text!r}", fix="one of the two", code="AS012")
        shorter = min(len(other), len(path))
        if other[:shorter] == path[:shorter]:
            tensor, held = (text, key) if len(other) < len(path) else (key, text)
            what = f"{tensor!r} is declared as a tensor, and {held!r} as one inside it"
            place.refuse(what, fix="one of the two", code="AS012")
    seen[path] = key


def _read_word(place: Place, allowed: tuple[str, ...]) -> str:
    if place.text not in allowed:
        words = ", ".join(f'"{w}"' for w in allowed)
        at = place.option if not isinstance(place.item, str) else f'{place.option}={{"{place.item}": '
        best = closest(place.text.strip(), allowed) or allowed[0]
        fix = f'{at}="{best}"' if at == place.option else f'{at}"{best}"}}'
        place.refuse(f"{place.text!r} is none of {words}", fix=fix, code="AS007")
    return place.text


def _refuse_unknown(place: Place, name: str, known: tuple[str, ...], *, whole: bool = False) -> None:
    match = None if whole else re.search(rf"(?<!\w){re.escape(name)}(?!\w)", place.text)
    start, end = match.span() if match else (0, len(place.text))
    listed = f"shapes names {', '.join(known)}" if known else "shapes names none"
    fix = f'shapes={{"x": "{name if name.isidentifier() else "n"} ..."}}'
    what = f"no dim is called {name!r}; {listed}"
    place.refuse(what, start, end, fix=fix, instead=closest(name, known), code="AS011")
