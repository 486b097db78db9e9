"""Runs PyTorch's own tests with torch.compile and with anyshape.compile in its place; prints what comes of it.

usage: python -m benchmarks.conformance PYTORCH [--only FILE ...] [--sample N] [--seed S] [--results DIR]
                                        [--markdown FILE] [--budget SECONDS] [--propose] [--eager] [--report]

PYTORCH is a checkout of PyTorch at the version of the installed torch; only its folder `test` is read. A run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import torch

from benchmarks.conformance import report, reviewed
from benchmarks.conformance.files import FILES, ONLY
from benchmarks.conformance.run import MODES, Run, sample


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pytorch", type=pathlib.Path, help="a checkout of PyTorch")
    parser.add_argument("--only", nargs="+", metavar="FILE", default=list(FILES), help="files below test/")
    parser.add_argument("--match", help="of each file, the tests that pytest's -k would choose")
    parser.add_argument("--sample", type=int, metavar="N", help="at most so many tests of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("build/conformance") / torch.__version__)
    parser.add_argument("--reviewed", type=pathlib.Path, default=reviewed.FILE)
    parser.add_argument("--markdown", type=pathlib.Path, help="where to write the table")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for one test")
    parser.add_argument("--at-once", type=int, default=100, metavar="N", help="tests in one process")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds after which to stop")
    parser.add_argument("--again", nargs="*", metavar="TEST", help="run what failed once more, or these tests")
    parser.add_argument("--propose", action="store_true", help="print entries for the reviewed list")
    parser.add_argument("--eager", action="store_true", help="list tests in which a call ran eagerly")
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args(arguments)

    tests = given.pytorch / "test"
    if not tests.is_dir():
        parser.error(
            f"{tests} is no folder: PYTORCH is a checkout of PyTorch at v{torch.__version__.partition('+')[0]}"
        )
    known = reviewed.load(given.reviewed)
    run = Run(tests, given.results, timeout=given.timeout, at_once=given.at_once)
    until = time.time() + given.budget if given.budget else 0.0
    rows = []
    for file in given.only:
        if not given.report:
            ids = sample(run.collected(file, given.match or ONLY.get(file, "")), given.sample, given.seed)
            for mode in MODES:
                run.run(file, mode, ids, _say, until)
        row = report.Row(file, run.of(file, "stock"), run.of(file, "anyshape"), known)
        if given.again is not None:
            run.forget(file, "anyshape", given.again or row.failed())
            run.run(file, "anyshape", [t for t in row.compared if t in (given.again or row.failed())], _say, until)
            row = report.Row(file, row.stock, run.of(file, "anyshape"), known)
        if given.propose:
            run.run(file, "lenient", row.failed(), _say, until)
            print(report.proposed(row, run.of(file, "lenient")), end="")
        if row.compared:
            rows.append(row)
    for line in report.findings(rows, eager=given.eager):
        print(line)
    print(report.table(rows))
    print(f"{report.share(rows):.2%} of what stock passes passes with anyshape or is on the reviewed list")
    if given.markdown:
        given.markdown.write_text(report.markdown(rows))
    return 1 if any(row.failed() for row in rows) else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
