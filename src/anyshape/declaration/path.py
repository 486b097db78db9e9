"""How a tensor of a call is named: `x`, `cfg.ids`, `batch['ids']`, `args[0]`, `self.cache.k`.

Owns the parsing of such paths, their check against a signature, and how one is followed to its value.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from anyshape.declaration.place import Place

_STEP = re.compile(
    r"""\.(?P<attribute>[^\W\d]\w*)|\[\s*(?:'(?P<single>[^'\]]*)'|"(?P<double>[^"\]]*)"|(?P<index>\d{1,6}))\s*\]"""
)
_ROOT = re.compile(r"[^\W\d]\w*")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step from a value into it."""

    kind: str  # attribute | key | index
    value: str | int

    def __str__(self) -> str:
        return f".{self.value}" if self.kind == "attribute" else f"[{self.value!r}]"


@dataclasses.dataclass(frozen=True)
class Path:
    """Where a tensor of a call is: an argument (or `args`, `kwargs`, `self`), and the steps into it."""

    text: str  # in the words of the user
    root: str
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return self.text

    def fetch(
        self,
        arguments: Mapping[str, Any],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        owner: Any = None,
    ) -> Any:
        """The value in a call, or None where there is none (an optional argument that was not given).

        `arguments` holds the arguments by parameter name (`inspect.BoundArguments.arguments`), `args` and `kwargs` the
        call as it was written, `owner` what `self` means.
        """
        if self.root in arguments:
            value = arguments[self.root]
        elif self.root == "args":
            value = args
        elif self.root == "kwargs":
            value = kwargs or {}
        elif self.root == "self":
            value = owner
        else:
            value = (kwargs or {}).get(self.root)
        for step in self.steps:
            if value is None:
                return None
            try:
                value = getattr(value, str(step.value)) if step.kind == "attribute" else value[step.value]
            except (AttributeError, KeyError, IndexError, TypeError):
                return None
        return value


def read_path(place: Place, signature: inspect.Signature | None) -> Path:
    """The path in the whole text of the place, checked against the signature where there is one."""
    text = place.text
    if not text.strip():
        place.refuse("an empty name names no argument", instead=_example(signature))
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    root = _ROOT.match(text, begin)
    if root is None:
        place.refuse("a path begins with the name of an argument", begin, end, instead=_example(signature))
    if keyword.iskeyword(root.group()):
        what = f"{root.group()!r} is a keyword of Python and cannot name an argument"
        place.refuse(what, root.start(), root.end(), instead=_example(signature))
    steps: list[Step] = []
    position = root.end()
    while position < end:
        match = _STEP.match(text, position)
        if match is None:
            _refuse_step(place, position, end)
        if match["index"] is not None:
            steps.append(Step("index", int(match["index"])))
        elif match["attribute"] is not None:
            steps.append(Step("attribute", match["attribute"]))
        else:
            steps.append(Step("key", match["single"] if match["single"] is not None else match["double"]))
        position = match.end()
    path = Path(text.strip(), root.group(), tuple(steps))
    if (
        root.group() == "L"
        and steps
        and steps[0].kind == "key"
        and (signature is None or "L" not in signature.parameters)
    ):
        fix = str(steps[0].value) + "".join(map(str, steps[1:]))
        place.refuse("this is a source of Dynamo's; arguments go by their own names", begin, end, instead=fix)
    if not steps and root.group() in ("self", "args", "kwargs") and not _is_parameter(signature, root.group()):
        fix = {"self": "self.cache.k", "args": "args[0]", "kwargs": "kwargs['x']"}[root.group()]
        place.refuse(f"{root.group()!r} holds tensors and is none", begin, end, instead=fix)
    if signature is not None:
        _check_signature(place, path, signature, root.start(), root.end(), end)
    return path


def canonical(path: Path, signature: inspect.Signature | None) -> tuple[object, ...]:
    """The same value for paths that lead to the same tensor: `x`, `args[0]` and `kwargs['x']`."""
    root, steps = path.root, path.steps
    if signature is not None and steps and root not in signature.parameters:
        first = steps[0]
        if root == "args" and first.kind == "index":
            names = [p.name for p in signature.parameters.values() if p.kind in _POSITIONAL]
            if int(first.value) < len(names):
                root, steps = names[int(first.value)], steps[1:]
        elif root == "kwargs" and first.kind == "key":
            root, steps = str(first.value), steps[1:]
    return (root, *((s.kind == "attribute", s.value) for s in steps))


def _refuse_step(place: Place, position: int, end: int) -> NoReturn:
    rest = place.text[position:end]
    if rest.startswith("[") and "]" not in rest:
        place.refuse("this bracket is never closed", position, end, instead=rest + "]")
    if re.match(r"\[\s*-", rest):
        place.refuse("an index counts from the front", position, end, instead="[0]")
    if named := re.match(r"\[\s*([^\W\d]\w*)\s*\]", rest):
        place.refuse("a key stands in quotes", position, position + named.end(), instead=f"['{named[1]}']")
    if rest.startswith("["):
        place.refuse("this is neither an index nor a key", position, end, instead="[0]")
    if rest.startswith("("):
        place.refuse("a path cannot call anything", position, end, instead="")
    place.refuse("this is no step of a path", position, end, instead="")


def _is_parameter(signature: inspect.Signature | None, name: str) -> bool:
    parameter = signature.parameters.get(name) if signature is not None else None
    return parameter is not None and parameter.kind not in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    )


def _example(signature: inspect.Signature | None) -> str:
    return next(iter(signature.parameters), "x") if signature is not None else "x"


def _check_signature(place: Place, path: Path, signature: inspect.Signature, start: int, end: int, whole: int) -> None:
    parameters = signature.parameters
    kinds = {p.kind for p in parameters.values()}
    if path.root in parameters or path.root == "self":
        return
    if path.root == "args":
        count = sum(p.kind in _POSITIONAL for p in parameters.values())
        first = path.steps[0]
        if first.kind != "index":
            place.refuse("positional arguments go by index", end, whole, instead="[0]")
        if inspect.Parameter.VAR_POSITIONAL in kinds or int(first.value) < count:
            return
        what = f"there is no args[{first.value}]: the function takes {count} positional argument{'s' * (count != 1)}"
        place.refuse(what, end, whole, instead=f"[{max(count - 1, 0)}]", code="AS011")
    root = path.root
    if root == "kwargs":
        first = path.steps[0]
        if first.kind != "key":
            place.refuse("keyword arguments go by name", end, whole, instead=f"['{_example(signature)}']")
        root = str(first.value)
        if root in parameters:
            return
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    names = list(parameters)
    close = difflib.get_close_matches(root, names, 1, 0.5) or [n for n in names if n.lower() == root.lower()]
    taken = ", ".join(names) or "no arguments"
    what = f"the function has no argument {root!r}; it takes {taken}"
    instead = (close[0] if close else _example(signature)) + "".join(
        map(str, path.steps if path.root != "kwargs" else path.steps[1:])
    )
    place.refuse(what, start, whole, instead=instead, code="AS011")
