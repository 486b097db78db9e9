"""What to do about a finding.

Owns the proposals: for each disease the things that help, the best first, as text to paste, as a table of
`anyshape.toml` and as settings that a second run can be made with. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from anyshape.doctor.events import Compilation
from anyshape.doctor.findings import Finding, Remedy

ADVICE: Final = Remedy("advice", "")
DYNAMIC: Final = "TORCH_COMPILE_DYNAMIC_SOURCES"
UNBACKED: Final = "TORCH_COMPILE_UNBACKED_SOURCES"
_IDENTIFIER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>\w+)_at_\d+")


def propose(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    """Remedies in the order in which they should be tried. Never empty: the last one is what a person can do."""
    make = _PROPOSALS.get(finding.code)
    proposals = make(finding, source, compilation) if make is not None else []
    if compilation.by == "anyshape":
        proposals = [p for p in proposals if p.kind in ("contiguous", "plain", "config")]
    return [*proposals, advice(finding)]


def advice(finding: Finding) -> Remedy:
    """What a person can do, in the words of the disease."""
    return Remedy("advice", finding.disease.advice)


def environment(variable: str, source: str, dim: int | None = None) -> Remedy:
    """A variable that torch reads, naming the source as torch does."""
    value = source if dim is None else f"{source}:{dim}"
    return Remedy("environment", f'export {variable}="{value}"', settings=((variable, value),))


def with_anyshape(finding: Finding, compilation: Compilation) -> Remedy:
    """Compile the same function with anyshape; the table says the same without touching code."""
    name = _function(compilation)
    return Remedy("anyshape", f"{name} = anyshape.compile({name})", toml=table(finding, compilation))


def table(finding: Finding, compilation: Compilation) -> str:
    """A table of `anyshape.toml` that compiles the callable and names the dims that vary."""
    lines = [f'["{_target(compilation)}"]', "compile = true"]
    shape = _shape(finding, compilation)
    if shape:
        lines.append(f"shapes = {{ {_key(finding.argument)} = {_quoted(shape)} }}")
    if finding.code == "D105" and _IDENTIFIER.fullmatch(finding.argument):
        lines.append(f'layout = {{ {_key(finding.argument)} = "any" }}')
    return "\n".join(lines)


def _dynamic(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    return [environment(DYNAMIC, source, finding.dim), with_anyshape(finding, compilation)] if source else []


def _zero_one(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    return [environment(UNBACKED, source, finding.dim), with_anyshape(finding, compilation)] if source else []


def _anyshape(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    return [with_anyshape(finding, compilation)]


def _layout(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    name = finding.argument
    contiguous = Remedy("contiguous", f"{name} = {name}.contiguous()", settings=((name, "contiguous"),))
    return [contiguous, with_anyshape(finding, compilation)]


def _parameter(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    name = finding.argument
    return [Remedy("plain", f"{name} = {name}.view_as({name})", settings=((name, "plain"),))]


def _value(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    if not _whole(finding):
        return []
    return [environment(DYNAMIC, source), with_anyshape(finding, compilation)]


def _attribute(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    if not _whole(finding):
        return []
    flag = "allow_unspec_int_on_nn_module"
    config = Remedy("config", f"torch._dynamo.config.{flag} = True", settings=((flag, "True"),))
    return [config, with_anyshape(finding, compilation)]


def _graph_break(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    flags = {
        "Dynamic shape operator": "capture_dynamic_output_shape_ops",
        "Tensor.item()": "capture_scalar_outputs",
        "capture_scalar_outputs": "capture_scalar_outputs",
    }
    found = [flag for text, flag in flags.items() if text in finding.detail]
    return [Remedy("config", f"torch._dynamo.config.{f} = True", settings=((f, "True"),)) for f in found[:1]]


def _limit(finding: Finding, source: str, compilation: Compilation) -> list[Remedy]:
    """The remedy of its cause."""
    cause = re.match(r"the cause is (?P<code>D\d+)", finding.detail)
    make = _PROPOSALS.get(cause["code"]) if cause else None
    return make(finding, source, compilation) if make is not None and make is not _limit else []


_PROPOSALS: Final[Mapping[str, Callable[[Finding, str, Compilation], list[Remedy]]]] = {
    "D101": _zero_one,
    "D102": _dynamic,
    "D103": _anyshape,
    "D105": _layout,
    "D106": _anyshape,
    "D107": _value,
    "D110": _attribute,
    "D111": _value,
    "D112": _parameter,
    "D120": _anyshape,
    "D121": _anyshape,
    "D122": _graph_break,
    "D130": _limit,
    "D140": _anyshape,
    "D141": _anyshape,
}


def _whole(finding: Finding) -> bool:
    """Whether all values seen are ints: torch can make those free."""
    return bool(finding.values) and all(type(v) is int for v in finding.values)


def _function(compilation: Compilation) -> str:
    found = _RESUMED.fullmatch(compilation.name)
    name = found["name"] if found else compilation.qualname or compilation.name
    name = name.rpartition("<locals>.")[2]
    if name.endswith(".forward"):
        return "model"  # a class is not what is compiled
    return name if _IDENTIFIER.fullmatch(name) else "f"


def _target(compilation: Compilation) -> str:
    found = _RESUMED.fullmatch(compilation.name)
    name = found["name"] if found else compilation.qualname or compilation.name
    name = name.rpartition("<locals>.")[2]
    module = compilation.module if _IDENTIFIER.fullmatch(compilation.module) else "__main__"
    return f"{module}:{name}" if _IDENTIFIER.fullmatch(name) else f"{module}:f"


def _shape(finding: Finding, compilation: Compilation) -> str:
    """The argument's dims: a name for the one that varies, `_` for the others."""
    if finding.dim is None or not _IDENTIFIER.fullmatch(finding.argument):
        return ""
    described = re.search(r"\[(?P<sizes>[\d, ]*)\]", compilation.arguments.get(finding.argument, ""))
    if described is None:
        return ""
    rank = len([s for s in described["sizes"].split(",") if s.strip()])
    name = f"{finding.argument.rpartition('.')[2]}_{finding.dim}"
    return " ".join(name if i == finding.dim else "_" for i in range(rank)) if finding.dim < rank else ""


def _key(argument: str) -> str:
    return argument if re.fullmatch(r"\w+", argument) else _quoted(argument)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
