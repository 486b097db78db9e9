"""Programs and sizes that nobody thought of, with eager as the oracle.

This file is the index: the names that a campaign in Python needs, and where they live.
"""

from anyshape.fuzz.campaign import Settings, Totals, run
from anyshape.fuzz.case import Call, Case, Input, Step
from anyshape.fuzz.corpus import Corpus
from anyshape.fuzz.generate import generate
from anyshape.fuzz.oracle import Target, Verdict, judge
from anyshape.fuzz.repro import Finding
from anyshape.fuzz.shrink import shrink

__all__ = [
    "Call",
    "Case",
    "Corpus",
    "Finding",
    "Input",
    "Settings",
    "Step",
    "Target",
    "Totals",
    "Verdict",
    "generate",
    "judge",
    "run",
    "shrink",
]
