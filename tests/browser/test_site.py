"""The documentation in a real browser: light, dark and on a phone."""

from __future__ import annotations

import functools
import http.server
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"), pytest.mark.slow]
ROOT = pathlib.Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PAGES = ("index", "tutorial/tour", "howto/declare", "about/comparison", "reference/api", "errors/AS020", "performance")
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site, built and served: from disk a browser lets no script read another file."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(folder)], cwd=ROOT, check=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_is_clean(site: str, look: str) -> None:
    """No error in the console, nothing wider than the screen, and nothing serious that axe-core finds."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    width, scheme = LOOKS[look]
    found: list[Any] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        for name in PAGES:
            page = context.new_page()
            page.on("console", lambda m, name=name: m.type == "error" and found.append((name, m.text)))
            page.on("pageerror", lambda e, name=name: found.append((name, str(e))))
            page.goto(f"{site}/{name}.html", wait_until="load")
            page.wait_for_timeout(300)
            root = "document.documentElement"
            wider = page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")
            if wider:
                found.append((name, f"{wider} pixels wider than the screen"))
            for problem in axe.run(page).response["violations"]:
                if problem["impact"] in ("serious", "critical"):
                    found.append((name, problem["id"], [n["html"] for n in problem["nodes"]][:3]))
            page.close()
        browser.close()
    assert found == []
