"""Rows of the zoo, held to what the zoo is for: eager's results, one program, at most one more at length 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from benchmarks.zoo import libraries, measure, mixed, newest, page, report

QUICK = ("qwen3", "patchtst", "textnet")
# Models whose own code tells sizes apart over the sweep, and how many programs that comes to.
BRANCHES = {"mistral": 2, "gemma3": 2, "mamba2": 2, "cohere2": 2, "exaone4": 2, "olmo3": 2, "llama4": 2, "pegasus-x": 2}
BRANCHES |= {"minimax": 4}  # a loop over blocks of 8
# Models called with no two sizes alike whose own code tells more than two kinds of sizes apart.
MORE = {"gemma3n": 3}
LATEST = [row.name for row in (*newest.ROWS, *libraries.ROWS)]
EARLIER = [n for n in measure.ROWS if n not in LATEST]
# Models that are no one graph to Dynamo: a loop over which experts were hit, sizes that become tensors and sizes again.
BROKEN = ("ctrl", "longformer", "nllb-moe")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EARLIER])
def test_inference(name: str) -> None:
    result = measure.measure(name, "inference")
    assert (result["wrong"], result["error"]) == ([], "")
    if name in BROKEN:
        return
    allowed = BRANCHES.get(name, 1)
    assert result["fallbacks"] == {}
    assert result["fullgraph"] and result["programs"] == allowed
    assert result["with_unit"] <= allowed + 1


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LATEST])
def test_no_two_sizes_alike(name: str) -> None:
    pytest.importorskip(measure.ROWS[name].library)
    result = measure.measure(name, "mixed")
    assert (result["wrong"], result["error"], report.eager_runs(result)) == ([], "", 0)
    assert result["programs"] <= MORE.get(name, 2)


def test_a_call_that_raises_is_compared_by_what_it_raises() -> None:
    ones = [torch.ones(2)]
    assert mixed.difference(ones, ones) == mixed.difference(ValueError("a"), ValueError("b")) == ""
    assert "KeyError" in mixed.difference(KeyError("a"), ValueError("b"))
    assert "ValueError" in mixed.difference(ones, ValueError("b"))
    assert "2 tensors" in mixed.difference([*ones, *ones], ones)
    assert "tensor 0" in mixed.difference([torch.zeros(2)], ones)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, row in measure.ROWS.items() if row.trains])
def test_training(name: str) -> None:
    result = measure.measure(name, "training")
    assert (result["wrong"], result["error"], result["fallbacks"]) == ([], "", {})
    assert result["programs"] == 1


def _results() -> dict[str, Any]:
    asked = ["x.shape[1] > 1", "user", "site-packages/transformers/masking_utils.py:271"]
    other = ["x.shape[1] <= 1", *asked[1:]]
    behaviours = [{"name": "f", "calls": 1, "predicates": [p], "breaks": []} for p in (asked, other)]
    inference = {
        "wrong": [], "error": "", "programs": 1, "with_unit": 2, "fullgraph": True, "fallbacks": {}, "seconds": 1.0,
        "behaviours": behaviours,
    }  # fmt: skip
    stock = {"wrong": [[(1, 1), "ValueError: no"]], "error": "ValueError: no", "programs": 3, "with_unit": 4}
    exported = {"wrong": [], "error": "", "programs": 1}
    models = {
        "llama": {"inference": inference, "auto": stock, "export": exported},
        "bert": {"training": {"wrong": [], "error": "late"}, "export": {**exported, "error": "a guard"}},
    }
    return {"2.13.0 aot_eager": {"versions": {"torch": "2.13.0", "transformers": "5"}, "models": models}}


def test_the_page_says_what_was_found() -> None:
    html = page.render(_results())
    assert "1 → 2" in html and "transformers/masking_utils.py:271" in html and "failed: late" in html
    assert "3 → 4, 1 wrong" in html and "1, failed" in html and "plotly" in html


def test_time_from_cold_is_that_of_the_best_stock_mode() -> None:
    ran = {"wrong": [], "error": "", "programs": 2, "raised": 1, "fallbacks": {"raises": 1}, "cold": 3.0}
    models = {"a": {"mixed": ran, "cold, auto": {"cold": 4.0}, "cold, dynamic=True": {"cold": 2.0}}}
    models["b"] = {"mixed": {**ran, "fallbacks": {"raises": 2}, "cold": 1.0}, "cold, auto": {"cold": 2.0}}
    bars = report.bars(models)
    assert bars["no two sizes alike: nothing run eagerly"] == "1 of 2"
    assert bars["CPU time of the first five sizes, anyshape / best stock mode"] == "median 1.00, most 1.50"


def test_the_bars_are_counted() -> None:
    bars = report.bars(_results()["2.13.0 aot_eager"]["models"])
    assert bars["one program for all sizes, fullgraph=True"] == "1 of 1"
    assert bars["at most one program more at length 1"] == "1 of 1"
    assert bars["stock, auto: right with one graph"] == "0 of 1"
    assert bars["exported, right at every size of the sweep"] == "1 of 2"
    assert bars["trained with eager's gradients and one program"] == "0 of 1"


def test_names_are_not_used_twice() -> None:
    every = [row.name for part in measure.PARTS for row in part.ROWS]
    assert len(every) == len(set(every)) >= 60
    assert sum(measure.ROWS[name].trains for name in every) >= 20
