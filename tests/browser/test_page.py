"""The doctor's page in a real browser, from disk, with no network."""

from __future__ import annotations

import dataclasses
import pathlib
import runpy
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import anyshape
from anyshape.doctor.events import Calls, Compilation, End, ProgramMade, Reason, Run
from anyshape.doctor.findings import Trial
from anyshape.doctor.report import Report

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PROGRAM = """
import torch

def scale(x, n):
    y = x * n
    return y + 1 if x.shape[0] > 6 else y

f = torch.compile(scale, backend="eager")
for n in (8, 9, 1, 4, 12):
    for m in (4, 5):
        f(torch.ones(n, m), m)
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A run of a real program, with a proof put beside it."""
    path = tmp_path_factory.mktemp("program") / "serve.py"
    path.write_text(PROGRAM)
    with anyshape.observe() as seen:
        runpy.run_path(str(path))
    return dataclasses.replace(seen.report, trial=Trial("all", 5, 2, 3.0, 1.0, "equal"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: pathlib.Path) -> Iterator[Any]:
    """A function that opens the page of a report; at the end nothing was fetched and nothing was logged."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])

    def open_report(report: Report) -> Any:
        path = tmp_path / "report.html"
        report.write_html(path)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda r: complaints.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None
        )
        page.goto(path.as_uri())
        page.wait_for_selector("#map-chart .main-svg")
        return page

    yield open_report
    context.close()
    assert complaints == []


def test_charts_have_the_data_of_the_run(open_page: Any, real: Report) -> None:
    page = open_page(real)
    assert page.locator("#timeline-chart .bars .point").count() >= len(real.compilations)
    assert page.locator("#map-chart .scatterlayer .point").count() >= 8
    assert page.locator("#axis-x").input_value() == "x.shape[0]"
    page.select_option("#axis-y", "x.shape[1]")
    assert "x.shape[1]" in page.locator("#map-chart .ytitle").text_content()
    assert page.locator("#map-chart .shapelayer path").count() >= 1, "the border of the branch is drawn"
    assert page.locator(".finding").count() == len(real.findings) > 0
    assert page.locator("table.proof td").all_text_contents()[1:3] == ["5", "2"]


def test_filters_and_copy_buttons(open_page: Any, real: Report) -> None:
    page = open_page(real)
    total = page.locator(".finding").count()
    for box in page.locator(".severity").all():
        box.uncheck()
    assert page.locator(".finding:visible").count() == 0 and page.locator("#shown").text_content() == "0 shown"
    for box in page.locator(".severity").all():
        box.check()
    page.fill("#search", "D101")
    assert 0 < page.locator(".finding:visible").count() < total
    page.fill("#search", "")
    page.locator(".copy").first.click()
    page.wait_for_function("document.getElementById('status').textContent === 'Copied.'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == real.findings[0].remedy.text


@pytest.mark.slow
def test_both_themes_and_the_keyboard(open_page: Any, real: Report) -> None:
    page = open_page(real)
    colour = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    light = colour()
    page.emulate_media(color_scheme="dark")
    assert colour() != light, "automatic follows the system"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    page.keyboard.press("Enter")
    assert colour() == light and "light" in page.locator("#theme").get_attribute("aria-label")
    page.keyboard.press("Enter")
    assert colour() != light


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_serious_problem(open_page: Any, real: Report, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(real)
    page.emulate_media(color_scheme=scheme)
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    found = axe.Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


def test_a_finding_leads_to_its_compilations(open_page: Any, real: Report) -> None:
    page = open_page(real)
    link = page.locator(".finding a").first
    target = link.get_attribute("href")
    link.click()
    page.wait_for_function(f"document.querySelector('{target}').open")
    assert "because" in page.locator(f"{target} summary").first.text_content()


def test_a_phone_and_an_empty_run(open_page: Any, real: Report, tmp_path: pathlib.Path) -> None:
    real.write_html(tmp_path / "size.html")
    assert (tmp_path / "size.html").stat().st_size < 1_500_000
    page = open_page(real)
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360", timeout=10_000)
    button, title = page.locator("#theme").bounding_box(), page.locator("h1").bounding_box()
    assert button["y"] >= title["y"] + title["height"], "the button does not lie over the title"
    text = Report.of([Run()])
    text.write_html(tmp_path / "empty.html")
    page.goto((tmp_path / "empty.html").as_uri())
    assert page.locator("section").count() == 2 and page.locator("nav a").count() == 1


def many_calls(count: int) -> Report:
    reason = Reason("0/0", "size", "L['x'].size()[0] == 8", "L['x']", 0, 8, 9, __file__, 1)
    compilations = [
        Compilation(f"0/{i}", "f", __file__, 1, i * 0.5, 0.3, reasons=(reason,) if i else (), qualname="f")
        for i in range(20)
    ]
    calls = [Calls(f"0/{i % 20}", (("L['x']", (i % 997, i % 83)),), 1, i / 100) for i in range(count)]
    program = ProgramMade("g", __file__, 1, "x.shape[0] > 8", (("x.shape[0] > 8", "user", __file__, 1),), 0.2, 0.1)
    return Report.of([Run(), *compilations, *calls, program, End("returned", 0, 9.0)])


@pytest.mark.slow
def test_ten_thousand_calls_scroll(open_page: Any) -> None:
    page = open_page(many_calls(10_000))
    began = page.evaluate("performance.now()")
    page.evaluate(
        """async () => {
            for (let y = 0; y < document.body.scrollHeight; y += 600) {
                scrollTo({top: y, behavior: "instant"});
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    took = page.evaluate("performance.now()") - began
    frames = page.evaluate("document.body.scrollHeight / 600")
    assert took / frames < 250, f"{took / frames:.0f} ms a screen"
    assert page.locator("#calls tbody tr").count() == 2000
    assert "10000 calls" in page.locator("h2").first.text_content()


@pytest.mark.slow
def test_text_of_the_program_is_not_markup(open_page: Any, real: Report) -> None:
    run = dataclasses.replace(real.run, command=("script", "</script><img src=x onerror=alert(1)>"))
    bad = dataclasses.replace(real.findings[0], detail="<b>bold</b>", function="</script><script>boom()</script>")
    page = open_page(dataclasses.replace(real, run=run, findings=(bad,)))
    assert page.locator("img").count() == 0 and page.locator(".finding b").count() == 0
