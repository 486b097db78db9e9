"""A finding as a Python file that fails on its own.

Owns the text of the file: the function, the calls, what makes their tensors, and a test. It needs torch and anyshape
and nothing else, and its exit status is 1 while it fails.
"""

from __future__ import annotations

import dataclasses
import inspect
import platform
import textwrap
from typing import Any

import torch

from anyshape._version import __version__
from anyshape.fuzz import devices, inputs
from anyshape.fuzz.case import NUMBER, Call, Case, dumps, loads
from anyshape.fuzz.oracle import ROUNDS, Target, Verdict, for_every_size

REGRESSIONS = "tests/quality/regressions.jsonl"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A case that is not what eager does."""

    case: Case
    verdict: Verdict
    target: Target
    seed: int
    number: int
    original: Case | None = None  # before it was shrunk
    static: str | None = None  # what torch.compile(dynamic=False) does wrong with it: torch's own fault then

    @property
    def name(self) -> str:
        return f"{(self.verdict.kind or 'none').replace(' ', '_')}_{self.case.fingerprint}"

    @property
    def signature(self) -> tuple[str, ...]:
        """What two findings that are probably one have in common."""
        return (self.verdict.kind or "", *sorted({s.op for s in self.case.steps}))

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.verdict.kind,
            "text": self.verdict.text,
            "seed": self.seed,
            "number": self.number,
            "ops": [s.op for s in self.case.steps],
            "compiler": self.target.compiler,
            "backend": self.target.backend,
            "variants": self.target.variants,
            "device": self.target.device,
            "static": self.static,
            "torch": torch.__version__,
            "case": dumps(self.case),
            "original": dumps(self.original) if self.original else None,
            "source": devices.source(self.case, self.target.device),
        }


def from_json(raw: dict[str, Any]) -> Finding:
    return Finding(
        loads(raw["case"]),
        Verdict(raw["kind"], raw["text"]),
        Target(raw["compiler"], raw["backend"], variants=raw.get("variants", False), device=raw.get("device", "cpu")),
        raw["seed"],
        raw["number"],
        loads(raw["original"]) if raw["original"] else None,
        raw["static"],
    )


_FILE = '''"""{kind}: {text}

Found by: anyshape fuzz --seed {seed} --compiler {compiler} --backend {backend}{option}, program {number}
With: torch {torch}, anyshape {version}, Python {python}
{static}Run it: python this_file.py (the status is 1 while it fails), or with pytest.
To keep it as a regression test, add this line to {regressions}:
{line}
"""

import sys

import torch
import torch.nn.functional as F
{imports}
from anyshape.testing import difference


{tensor}

{function}

CALLS = [
{calls}
]


def test_{name}():
    torch.compiler.reset()
    compiled = {compile}
    for number, make in {calls_made}:{wait}
        text = difference(fn, compiled, make(){options})
        assert text is None, f"call {{number}}: {{text}}"
{economy}

if __name__ == "__main__":
    try:
        test_{name}()
    except AssertionError as error:
        sys.exit(f"it fails: {{error}}")
    print("it holds")
'''

_COMPILE = {
    "anyshape": 'anyshape.compile(fn, backend="{backend}"{declared})',
    "stock:static": 'torch.compile(fn, backend="{backend}", dynamic=False)',
    "stock:dynamic": 'torch.compile(fn, backend="{backend}", dynamic=True)',
    "stock:unbacked": 'marked(torch.compile(fn, backend="{backend}"))',
}
_MARKED = '''def marked(compiled):
    """Every dim of every tensor is marked before a call."""

    def call(*args):
        for value in args:
            for dim in range(value.dim()) if isinstance(value, torch.Tensor) else ():
                torch._dynamo.decorators.mark_unbacked(value, dim)
        return compiled(*args)

    return call

'''


def text(finding: Finding) -> str:
    """The file."""
    case, target = finding.case, finding.target
    tensor = inspect.getsource(inputs.tensor).replace("  # type: ignore[no-untyped-def]", "")
    tolerance = ", rtol=1e-3, atol=1e-3" if target.backend == "inductor" else ""
    economy = finding.verdict.kind == "economy"
    bound = finding.verdict.behaviours or 1
    words = for_every_size(case) if target.variants else {}
    declared = "".join(f", {name}={value!r}" for name, value in words.items())
    return _FILE.format(
        kind=finding.verdict.kind,
        text=textwrap.shorten(finding.verdict.text.replace("\\", "\\\\").replace('"""', "'''"), 400),
        seed=finding.seed,
        number=finding.number,
        compiler=target.compiler,
        backend=target.backend,
        option=(" --variants" if target.variants else "")
        + (f" --device {target.device}" if target.device != "cpu" else ""),
        torch=torch.__version__,
        version=__version__,
        python=platform.python_version(),
        static=f"torch.compile(dynamic=False) differs too: {finding.static}\n" if finding.static else "",
        regressions=REGRESSIONS,
        line=dumps(case).replace("\\", "\\\\"),
        imports="\nimport anyshape" if target.compiler == "anyshape" else "",
        tensor=tensor,
        function=(_MARKED + "\n" if target.compiler == "stock:unbacked" else "") + devices.source(case, target.device),
        calls="\n".join(f"    lambda: {_arguments(case, call, target.device)}," for call in case.calls),
        name=case.fingerprint,
        compile=_COMPILE[target.compiler].format(backend=target.backend, declared=declared),
        calls_made=f"[*enumerate(CALLS)] * {ROUNDS}" if target.variants else "enumerate(CALLS)",
        wait="\n        compiled.wait()" if target.variants else "",
        options=(", backward=True" if case.backward else "") + tolerance,
        economy=f'    assert len(compiled.programs) <= {bound}, f"{{len(compiled.programs)}} programs"\n'
        if economy
        else "",
    )


def _arguments(case: Case, call: Call, device: str) -> str:
    sizes = dict(call.sizes)
    made = []
    for number, (declared, layout) in enumerate(zip(case.inputs, call.layouts, strict=True)):
        shape = tuple(sizes[d] for d in declared.dims)
        if declared.dtype == NUMBER:
            made.append(str(shape[0]))
        else:
            grad = ", grad=True" if declared.grad else ""
            there = f', device="{device}"' if device != "cpu" else ""
            made.append(f'tensor({shape}, "{declared.dtype}", "{layout}", {call.seed + number}{grad}{there})')
    return f"({', '.join(made)},)"
