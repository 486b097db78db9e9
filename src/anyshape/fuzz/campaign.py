"""A campaign: many cases, in workers that may die.

Owns the chunks, the worker processes and their deadlines, and the totals. A worker that crashes, hangs or runs out of
memory is a finding like any other, and the chunk goes on after the case it died of.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyshape.errors import NotCompilableError
from anyshape.fuzz import repro
from anyshape.fuzz.case import Case, binds, dumps, loads
from anyshape.fuzz.corpus import Corpus
from anyshape.fuzz.operations import OPERATIONS
from anyshape.fuzz.oracle import Target, Verdict
from anyshape.fuzz.repro import Finding
from anyshape.fuzz.shrink import shrink

CHUNK = 200
_COUNTS = ("programs", "calls", "raised", "fallbacks", "compiled", "variants")  # of a chunk, and of all


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a campaign is."""

    programs: int = 1000
    seed: int = 0
    target: Target = dataclasses.field(default_factory=Target)
    workers: int = 1
    shard: tuple[int, int] = (0, 1)
    timeout: float = 120.0  # seconds that one case may take
    shrink_seconds: float = 120.0
    memory_gib: float = 24.0

    @property
    def name(self) -> str:
        """The folder of its chunks: what is in it does not depend on workers or shards."""
        compiler = self.target.compiler.replace(":", "-")
        backend = self.target.backend + ("-variants" if self.target.variants else "")
        device = "" if self.target.device == "cpu" else f"-{self.target.device}"
        return f"seed{self.seed}-{compiler}-{backend}{device}-torch{torch.__version__.split('+')[0]}"

    def chunks(self) -> list[tuple[int, int]]:
        """Those of this shard."""
        index, count = self.shard
        starts = range(0, self.programs, CHUNK)
        return [(s, min(s + CHUNK, self.programs)) for i, s in enumerate(starts) if i % count == index]


@dataclasses.dataclass
class Totals:
    """What a campaign has found so far."""

    programs: int = 0
    calls: int = 0
    raised: int = 0
    fallbacks: int = 0
    compiled: int = 0
    variants: int = 0
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    eagerly: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # why, by reason
    first: dict[str, int] = dataclasses.field(default_factory=dict)  # the first program that ran so
    ops: set[str] = dataclasses.field(default_factory=set)
    pairs: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    findings: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, chunk: dict[str, Any]) -> None:
        for name in (*_COUNTS, "seconds"):
            setattr(self, name, getattr(self, name) + chunk.get(name, 0))  # an older corpus does not have all
        self.kinds.update(chunk["kinds"])
        self.eagerly.update(chunk.get("eagerly", {}))
        for why, number in chunk.get("first", {}).items():
            self.first[why] = min(number, self.first.get(why, number))
        self.ops |= set(chunk["ops"])
        self.pairs |= {(a, b) for a, b in chunk["pairs"]}
        self.findings += chunk["findings"]

    def json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return plain | {"ops": sorted(self.ops), "pairs": sorted(self.pairs), "of_ops": len(OPERATIONS)}

    def line(self) -> str:
        pace = self.programs / self.seconds if self.seconds else 0.0
        variants = f"{self.variants} variants, " if self.variants else ""
        return (
            f"{self.programs} programs, {variants}{pace:.2f} a second and worker, "
            f"{len(self.ops)} of {len(OPERATIONS)} ops, {len(self.pairs)} pairs, {len(self.findings)} findings"
        )


def parse_shard(text: str | None) -> tuple[int, int]:
    """`2/8`; without one, what torchrun says about this process."""
    if text is None:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise NotCompilableError(f"shard {text!r} is not of the form 0/4", value=text, fix="--shard 0/4", code="AS007")
    return int(index), int(count)


def run(settings: Settings, corpus: Corpus, report: Callable[[Totals], None] = lambda totals: None) -> Totals:
    """Run what is left of a campaign, and give back the whole."""
    totals = Totals()
    lock = threading.Lock()
    left = []
    for start, stop in settings.chunks():
        kept = corpus.chunk(settings.name, start)
        if kept is not None and kept["stop"] == stop:
            totals.add(kept)
        else:
            left.append((start, stop))

    def one(chunk: tuple[int, int]) -> None:
        result = _run_chunk(settings, *chunk, corpus)
        corpus.save_chunk(settings.name, chunk[0], result)
        with lock:
            totals.add(result)
            report(totals)

    report(totals)
    with concurrent.futures.ThreadPoolExecutor(settings.workers) as pool:
        try:
            for done in concurrent.futures.as_completed([pool.submit(one, chunk) for chunk in left]):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return totals


def _run_chunk(settings: Settings, start: int, stop: int, corpus: Corpus) -> dict[str, Any]:
    result: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
    result |= {"stop": stop, "kinds": collections.Counter(), "eagerly": collections.Counter()}
    result |= {"first": {}, "ops": set(), "pairs": set(), "findings": []}
    began = time.monotonic()
    number = start
    while number < stop:
        number = _run_worker(settings, number, stop, result, corpus)
    result["seconds"] = time.monotonic() - began
    return result | {"ops": sorted(result["ops"]), "pairs": sorted(result["pairs"]), "kinds": dict(+result["kinds"])}


def _run_worker(settings: Settings, start: int, stop: int, result: dict[str, Any], corpus: Corpus) -> int:
    """Run cases from `start` on; the number of the next one to run."""
    number = drawing = start - 1
    case: Case | None = None
    known: dict[str, Any] | None = None  # the verdict on a case that was being shrunk
    keep = lambda finding: _keep(finding, result, corpus)
    for event in _events(settings, {"seed": settings.seed, "start": start, "stop": stop}):
        kind = event["event"]
        if kind == "drawing":
            drawing = event["number"]
        elif kind == "case":
            number, case, known = event["number"], loads(event["case"]), None
            _cover(case, result)
        elif kind == "verdict":
            known = event
            result["programs"] += 1
            result["raised"] += event["raised"]
            result["fallbacks"] += event["fallbacks"]
            result["compiled"] += event["programs"]
            result["variants"] += event["variants"]
            result["eagerly"].update(event["eagerly"])
            for why in event["eagerly"]:
                result["first"].setdefault(why, number)
            result["kinds"][event["kind"] or event["text"] or "equal"] += 1
        elif kind == "known":
            result["kinds"].subtract([event["kind"]])
            result["kinds"][f"known: {event['fault']}"] += 1
        elif kind == "finding":
            raw = event["finding"]
            finding = repro.from_json(raw)
            verdict = dataclasses.replace(finding.verdict, behaviours=raw["behaviours"])
            keep(dataclasses.replace(finding, verdict=verdict))
        elif kind == "done":
            return stop
        elif (
            kind == "died"
            and drawing > number
            and _dies(settings, {"seed": settings.seed, "draw": drawing}) is not None
        ):
            result["kinds"]["eager dies"] += 1  # of a step that a program might have had
            return drawing + 1
        elif kind == "died" and case is None:
            raise RuntimeError(f"a worker could not be started: {event['text']}")
        elif kind == "died":
            assert case is not None
            if known is not None and known["kind"] is not None:  # while shrinking, in a case that nobody asked about
                verdict = Verdict(known["kind"], known["text"], known["call"])
                keep(Finding(case, verdict, settings.target, settings.seed, number))
                return number + 1
            result["programs"] += known is None  # on a GPU what kills a process may show after the verdict
            finding = Finding(case, Verdict(event["how"], event["text"]), settings.target, settings.seed, number)
            if _dies_of(settings, _eager(settings), case) is not None:
                result["kinds"]["eager dies"] += 1
                return number + 1
            result["kinds"][event["how"]] += 1
            keep(_shrunk_outside(finding, settings))
            return number + 1
    return stop


def _keep(finding: Finding, result: dict[str, Any], corpus: Corpus) -> None:
    result["findings"].append(finding.json() | {"file": corpus.save_finding(finding)})


def _cover(case: Case, result: dict[str, Any]) -> None:
    result["calls"] += len(case.calls)
    result["ops"] |= {s.op for s in case.steps}
    for i, step in enumerate(case.steps):
        makers = [s for s in case.steps[:i] if any(binds(s, n) for n in step.operands)]
        result["pairs"] |= {(s.op, step.op) for s in makers}


def _shrunk_outside(finding: Finding, settings: Settings) -> Finding:
    """A case that kills its process is shrunk with a process for each attempt."""

    def fails(case: Case) -> bool:
        how = _dies_of(settings, settings.target, case)
        return how == finding.verdict.kind and _dies_of(settings, _eager(settings), case) is None

    case = shrink(finding.case, fails, seconds=settings.shrink_seconds)
    return dataclasses.replace(finding, case=case)


_AT_THE_END = "nanobind:"  # what is said when a process ends, whatever of
_STARTING = 10  # times as long as a program a worker may take to start: on a busy machine imports take minutes


def _eager(settings: Settings) -> Target:
    return dataclasses.replace(settings.target, compiler="eager", variants=False)


def _dies_of(settings: Settings, target: Target, case: Case) -> str | None:
    return _dies(dataclasses.replace(settings, target=target), {"case": dumps(case)})


def _dies(settings: Settings, given: dict[str, Any]) -> str | None:
    """How a process that does nothing else dies of a case, or of drawing one; None if it does not."""
    events = list(_events(settings, given))
    return str(events[-1]["how"]) if events and events[-1]["event"] == "died" else None


def _events(settings: Settings, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a worker says; the last is `died` if it did not come to its end."""
    given = given | {
        "target": dataclasses.asdict(settings.target),
        "shrink_seconds": settings.shrink_seconds,
        "memory_gib": settings.memory_gib,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "anyshape.fuzz.worker", json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    lines: queue.Queue[str | None] = queue.Queue()
    errors: collections.deque[str] = collections.deque(maxlen=40)
    pumps = [
        threading.Thread(target=_pump, args=(process.stdout, lines.put), daemon=True),
        threading.Thread(target=_pump, args=(process.stderr, errors.append), daemon=True),
    ]
    for pump in pumps:
        pump.start()
    limit = _STARTING * settings.timeout
    try:
        while True:
            try:
                line = lines.get(timeout=limit)
            except queue.Empty:
                yield {"event": "died", "how": "hang", "text": f"no answer within {limit:g} seconds"}
                return
            limit = settings.timeout
            if line is None:
                break
            yield json.loads(line)
        status = process.wait()
        if status:
            pumps[1].join(timeout=5)
            told = [e.strip() for e in errors if e and not e.startswith(_AT_THE_END)]
            last = " ".join(told[-3:])
            how = "memory" if "MemoryError" in last or "bad_alloc" in last or status == -9 else "crash"
            yield {"event": "died", "how": how, "text": f"status {status}: {last}"[:600]}
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pump in pumps:  # each closes its own end
            pump.join(timeout=5)


def _pump(stream: Any, put: Callable[[Any], Any]) -> None:
    with stream:
        for line in stream:
            put(line)
    put(None)
