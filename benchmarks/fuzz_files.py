"""Files that nobody wrote: the container, the manifest, anyshape.toml and a trace, mutated while there is time.

    python benchmarks/fuzz_files.py --seconds 600 [--target container|manifest|toml|trace]

Whatever the bytes are, reading them ends, in time, with a value or an `anyshape.Error`, and memory stays flat. What
reaches lines that nothing has reached before is kept and mutated further: by what is written here, or with `--atheris`
by atheris (one target then, container if none is named). Status 1 if anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

if "--atheris" in sys.argv:  # it follows the modules that are imported here, and no others
    import atheris  # type: ignore[import-not-found]

    followed = atheris.instrument_imports(include=["anyshape", "json", "tomllib"])
else:
    followed = contextlib.nullcontext()
with followed:
    from anyshape.artifact import container, inspecting, manifest
    from anyshape.declaration import spec_file
    from anyshape.doctor import trace
    from anyshape.errors import Error

SLOW = 5.0  # seconds that no input may take
HERE = {n: f"{n} 1" for n in manifest.ENVIRONMENT}
FACTS: dict[str, Any] = {
    "warning": "code", "name": "f", "key": "k" * 64, "environment": HERE, "source": {"function f": "abc"},
    "declaration": {"shapes": {"x": "n"}}, "weights": "live",
    "programs": [{"behavior": "every size", "predicates": [{"text": "n > 8", "file": "f.py", "line": 3}]}],
}  # fmt: skip
TOML = b"""["m:f"]
shapes = { x = "batch seq 512", y = "batch ..." }
where = ["1 <= batch <= 64", "seq % 8 == 0"]
layout = "any"
hints = { seq = [128, 1024], batch = 16 }
specialize = ["batch == 1"]
compile = true
["m:C.forward".shapes]
"cfg['ids']" = "n"
"""
WORDS = (
    b'"', b"'", b"{", b"[", b"]", b"}", b"=", b"\n", b".", b",", b"...", b"-1", b"1e9", b"9" * 30, b"\\ud800",
    b"\x1b[2J", b"\xff", b"\x00", b"null", b"true", b"NaN", b"members", b"programs", b"where", b"shapes", b"batch",
    b" % ", b"**", b"<=", b"(", b")", b"bytes", b"sha256", b"name", b"../", b"\xe2\x80\xae",
)  # fmt: skip


def sealed(text: bytes, members: bytes = b"") -> bytes:
    """A file around a manifest, with a right digest: what somebody would make who knows the format."""
    body = container.MAGIC + struct.pack("<III", container.FORMAT, len(text), 0) + text + members
    return body + hashlib.sha256(body).digest()


def read_container(data: bytes) -> None:
    for given in (data, data[:-32] + hashlib.sha256(data[:-32]).digest()):
        try:
            contents = container.unpack(given, where="f.any")
            manifest.check_form(contents.manifest, "f.any")
            report = {**contents.manifest, "signature": "none", "bytes": len(given)}
            text = inspecting.text(report)
            assert all(c.isprintable() or c == "\n" for c in text), "a terminal would obey"
            manifest.check_environment(contents.manifest, HERE, "f.any")
            manifest.check_source(contents.manifest, {"function f": "abc"}, "f.any")
            manifest.check_name(contents.manifest, "f", "f.any")
        except Error as error:
            assert all(c.isprintable() or c in "\n\t" for c in str(error)), "a terminal would obey"


def read_manifest(data: bytes) -> None:
    read_container(sealed(data, b"member"))


FILE = pathlib.Path(tempfile.mkdtemp()) / "anyshape.toml"


def read_toml(data: bytes) -> None:
    FILE.write_bytes(data)
    try:
        for entry in spec_file.read(FILE).entries:
            entry.declaration()
    except Error as error:
        assert all(c.isprintable() or c in "\n\t" for c in str(error)), "a terminal would obey"


TRACE = FILE.with_name("trace.log")
HEAD = b"V1119 20:31:26.826000 1234 torch/_logging/structured.py:22] "
SIZE = b"tensor 'x' size mismatch at index 0. expected 3, actual 4"
ENTRIES = [
    b'{"str": ["/a/x.py", 1]}',
    b'{"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": 1}]}, "frame_id": 0, "frame_compile_id": 0}',
    b'{"compilation_metrics": {"start_time": 1.0, "compile_id": "0/0", "co_name": "f"}, "frame_id": 0}',
    b'{"symbolic_shape_specialization": {"user_stack": [{"line": 3, "filename": 1}], "sources": ["L[x].size()[0]"]}}',
    b'{"artifact": {"name": "recompile_reasons"}, "frame_id": 0, "frame_compile_id": 1}\n\t["0/0: ' + SIZE + b'"]',
    b'{"artifact": {"name": "dynamo_graph_break_reason"}}\n\tGraph break in user code at x.py:3\n\tReason: y',
    b'{"compilation_metrics": {"start_time": 2.0, "compile_id": "0/1", "recompile_reason": "0/0: ' + SIZE + b'"}}',
]


def read_trace(data: bytes) -> None:
    TRACE.write_bytes(data)
    try:
        report = trace.read(TRACE)
        json.dumps(report.json(), default=repr).encode()
        text = str(report)
    except Error as error:
        text = str(error)
    assert all(c.isprintable() or c in "\n\t" for c in text), "a terminal would obey"


def _seeds() -> dict[str, tuple[Callable[[bytes], None], list[bytes]]]:
    listed = [{"name": "a/b", "bytes": 6, "sha256": hashlib.sha256(b"member").hexdigest()}]
    text = json.dumps({**FACTS, "members": listed}).encode()
    whole = container.pack(FACTS, {"a/b": b"member", "c": b""})
    manifest.check_form(container.unpack(whole, where="a seed").manifest, "a seed")  # else nothing gets further
    return {
        "container": (read_container, [whole, whole[:100]]),
        "manifest": (read_manifest, [text, b"{}"]),
        "trace": (read_trace, [b"\n".join(HEAD + e for e in ENTRIES), b"\n".join(HEAD + e for e in ENTRIES[2::4])]),
        "toml": (read_toml, [TOML, b'["m:f"]\ncompile = true\n', b""]),
    }


def mutate(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.choice((0, 1, 1, 2, 4, 16, 64)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at:end] = rng.choice(WORDS)
        elif kind == 2:
            del made[at:end]
        elif kind == 3:
            made[at:at] = made[at:end] * rng.choice((1, 2, 50, 500))
        elif kind == 4:
            other = rng.choice(others)
            begin = rng.randrange(len(other) + 1)
            made[at:end] = other[begin : begin + rng.choice((4, 16, 64, 256))]
        else:
            made[at:end] = rng.randbytes(rng.choice((1, 2, 4)))
    return bytes(made[: 1 << 16])


class Lines:
    """Which lines of anyshape have been reached, and from which line before."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.new = 0
        self._last = 0

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if "anyshape" not in frame.f_code.co_filename:
            return None
        here = hash((frame.f_code, frame.f_lineno))
        edge = here ^ (self._last >> 1)
        if edge not in self.seen:
            self.seen.add(edge)
            self.new += 1
        self._last = here
        return self


def inputs(corpus: list[bytes], rng: random.Random) -> Iterator[bytes]:
    while True:
        yield mutate(rng.choice(corpus[-64:] if rng.random() < 0.5 else corpus), corpus, rng)


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(name: str, seconds: float, seed: int) -> int:
    read, corpus = _seeds()[name]
    rng, lines, found, ran = random.Random(seed), Lines(), 0, 0
    began, grown = time.monotonic(), 0
    for data in [*corpus]:
        read(data)
    for data in inputs(corpus, rng):
        if time.monotonic() - began > seconds:
            break
        lines.new, start = 0, time.process_time()
        sys.settrace(lines)
        try:
            read(data)
        except Exception:
            sys.settrace(None)
            found += 1
            traceback.print_exc()
            print(f"{name}: {data!r}"[:2000], flush=True)
        finally:
            sys.settrace(None)
        if time.process_time() - start > SLOW:
            found += 1
            print(f"{name}: {time.process_time() - start:.1f} s for {data!r}"[:2000], flush=True)
        if lines.new:
            corpus.append(data)
        ran += 1
        if ran == 2000:
            grown = memory()
    grown = memory() - grown if grown else 0
    print(f"{name}: {ran} inputs, {len(corpus)} kept, {len(lines.seen)} edges, {grown >> 20} MiB more, {found} found")
    return found + (grown > 64 << 20)


def with_atheris(name: str, seconds: float, seed: int) -> None:
    read, corpus = _seeds()[name]
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "corpus").mkdir()
    for number, data in enumerate(corpus):
        (folder / "corpus" / str(number)).write_bytes(data)
    quoted = lambda word: "".join(f"\\x{byte:02x}" for byte in word)
    (folder / "words").write_text("".join(f'"{quoted(word)}"\n' for word in WORDS))
    options: dict[str, Any] = {
        "max_total_time": int(seconds),
        "rss_limit_mb": 2048,
        "timeout": int(SLOW),
        "max_len": 1 << 16,
    }
    options |= {"seed": seed + 1, "dict": folder / "words", "artifact_prefix": f"{folder}/found-"}
    said = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *said, str(folder / "corpus")], read)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=list(_seeds()))
    parser.add_argument("--atheris", action="store_true", help="one target, by atheris")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.atheris:
        with_atheris(given.target or "container", given.seconds, given.seed)
    chosen = [given.target] if given.target else list(_seeds())
    return int(sum(fuzz(name, given.seconds / len(chosen), given.seed) for name in chosen) > 0)


if __name__ == "__main__":
    sys.exit(main())
