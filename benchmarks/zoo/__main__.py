"""Runs the zoo, beside stock modes: progress on the terminal, a JSON file that a later run goes on from, a page.

usage: python -m benchmarks.zoo [--json FILE] [--html FILE] [--only NAME ...] [--ways WAY ...] [--backend NAME]
                              [--markdown FILE] [--again]
       python -m benchmarks.zoo --trace [--device cuda] [--only NAME ...] [--layers N] [--calls N]     (see requests.py)
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import pathlib
import sys
import time
from typing import Any

from benchmarks.zoo import measure, page, report, requests

# A process that has imported what every model needs, and from which each model's own is forked.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["benchmarks.zoo.measure", "transformers"])


def run(name: str, way: str, *, backend: str, seconds: float) -> dict[str, Any]:
    """One model, one way, in a process of its own."""
    mine, theirs = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=measure.send, args=(theirs, name, way, backend))
    began = time.perf_counter()
    process.start()
    theirs.close()
    try:
        if mine.poll(seconds):
            return mine.recv()  # type: ignore[no-any-return]
        return {"wrong": [], "error": f"not done after {seconds:.0f} s", "seconds": seconds}
    except EOFError:
        process.join()
        error = f"the process ended: exit {process.exitcode}"
        return {"wrong": [], "error": error, "seconds": time.perf_counter() - began}
    finally:
        process.kill()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("build/zoo.json"))
    parser.add_argument("--html", type=pathlib.Path, default=pathlib.Path("build/zoo.html"))
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=measure.ROWS, metavar="NAME", default=list(measure.ROWS))
    parser.add_argument("--ways", nargs="+", choices=report.WAYS, metavar="WAY", default=list(report.WAYS))
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--again", action="store_true", help="do not go on from the JSON file")
    options = parser.parse_args()

    results = {} if options.again or not options.json.exists() else json.loads(options.json.read_text())
    versions = report.versions()
    key = f"{versions['torch']} {options.backend}"
    mine = results.setdefault(key, {"versions": versions, "models": {}})["models"]
    there = [n for n in options.only if importlib.util.find_spec(measure.ROWS[n].library)]
    jobs = [(n, w) for n in there for w in options.ways if w != "training" or measure.ROWS[n].trains]
    jobs = [(n, w) for n, w in jobs if w not in mine.get(n, {})]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    for name, way, say in report.progress(jobs):
        result = run(name, way, backend=options.backend, seconds=options.timeout)
        mine.setdefault(name, {})[way] = result
        say(report.line(name, way, result))
        options.json.write_text(json.dumps(results, indent=1))
    report.table(results)
    options.html.write_text(page.render(results))
    if options.markdown:
        options.markdown.write_text(report.markdown(results))
    print(f"{options.json}, {options.html}")


if __name__ == "__main__":
    if "--trace" in sys.argv[1:]:
        requests.main(sys.argv[1:])
    else:
        main()
