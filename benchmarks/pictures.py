"""Renews the pictures in the documentation: the table of the demo, and the doctor's page in Chromium.

    python benchmarks/pictures.py            # both; name one of them for that one alone: demo, doctor

Owns no figures: it runs `anyshape demo` and `anyshape doctor` as they are, and writes into docs/images.
"""

from __future__ import annotations

import io
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

IMAGES = pathlib.Path(__file__).parents[1] / "docs" / "images"
PROGRAM = """\
import torch


@torch.compile(backend="aot_eager")
def pooled(tokens, mask):
    return (tokens * mask.unsqueeze(-1)).sum(1)


@torch.compile(backend="aot_eager")
def best(scores, values, indices):
    torch.topk(scores, 3, out=(values, indices))
    return values.softmax(-1)


for batch in (8, 9, 1, 4, 12, 0):
    for length in (5, 7, 16):
        pooled(torch.ones(batch, length, 4), torch.ones(batch, length))

for n in range(4, 15):
    best(torch.rand(n, 10), torch.empty(n, 3), torch.empty(n, 3, dtype=torch.long))
"""


def demo() -> None:
    """The table of `anyshape demo`, as a terminal shows it."""
    from rich.console import Console

    from anyshape import demo

    rows = demo.run()
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    console.print(demo.table(rows))
    console.print(demo.summary(rows))
    drawn = console.export_svg(title="anyshape demo")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # fonts of another site: none is fetched
    (IMAGES / "demo.svg").write_text(drawn)


def doctor() -> None:
    """The page of `anyshape doctor --verify`, down to the map of sizes."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        (pathlib.Path(folder) / "serve.py").write_text(PROGRAM)
        command = [sys.executable, "-m", "anyshape", "doctor", "--verify", "--html", "report.html", "serve.py"]
        subprocess.run(command, cwd=folder, check=True)
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 1500}, color_scheme="light")
        page.goto((pathlib.Path(folder) / "report.html").as_uri())
        page.wait_for_selector("#map-chart .main-svg")
        page.locator(".finding").first.scroll_into_view_if_needed()
        page.screenshot(path=str(IMAGES / "doctor.png"))
        browser.close()


if __name__ == "__main__":
    for name in sys.argv[1:] or ["demo", "doctor"]:
        {"demo": demo, "doctor": doctor}[name]()
