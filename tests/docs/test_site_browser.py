# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The built site, opened from disk without a network: search, live pages, dark mode, every page."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_blocks import ROOT

pytestmark = pytest.mark.browser

LOCAL = ("file:", "data:", "blob:", "about:", "chrome:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a warning fails."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--nitpicky", "--fail-on-warning", "--keep-going", "--quiet"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            *options,
            "-d",
            folder / "doctrees",
            "docs",
            folder / "html",
        ],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder / "html"


class Reader:
    """Somebody who reads the site in a browser."""

    def __init__(self, browser: Any, site: Path):
        self.browser, self.site = browser, site

    def open(self, page: str) -> None:
        self.browser.get_log("performance")
        self.browser.get_log("browser")
        self.browser.get((self.site / page).as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def until(self, condition: str, *arguments: Any) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser, 30, 0.05).until(
            lambda _: self.run(f"return Boolean({condition})", *arguments)
        )

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def addresses(self) -> list[str]:
        """What the page made the browser load since it was opened."""
        events = [json.loads(e["message"])["message"] for e in self.browser.get_log("performance")]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def complaints(self) -> list[str]:
        log = self.browser.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]


@pytest.fixture
def reader(chromium: Any, site: Path) -> Iterator[Reader]:
    chromium.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "light"}]},
    )
    yield Reader(chromium, site)
    chromium.switch_to.default_content()
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.get("about:blank")


def test_the_search_finds_a_function_and_a_concept(reader: Reader) -> None:
    for words, target in (
        ("effective_attention", "reference/api/attribution.html"),
        ("sieve", "concepts/statistics.html"),
        ("quarantine", "reference/commands/extract.html"),
    ):
        reader.open("index.html")
        box = reader.find("input[name=q]")
        box.send_keys(words)
        box.submit()
        reader.until(f"document.querySelector('ul.search a[href*=\"{target}\"]')")
        reader.run(f"document.querySelector('ul.search a[href*=\"{target}\"]').click()")
        reader.until(f"location.pathname.endsWith('{target}')")
        assert words.lower() in reader.find("article").text.lower()
    assert reader.complaints() == []


def test_a_live_page_works_inside(reader: Reader) -> None:
    reader.open("index.html")
    reader.browser.switch_to.frame(reader.find("iframe.attention-page"))
    reader.until("document.querySelector('main')?.flaxattn")
    assert "looks at" in reader.find("main").text
    reader.run("document.querySelectorAll('button.head')[2].click()")
    reader.until("document.querySelectorAll('button.head')[2].ariaPressed === 'true'")
    assert reader.complaints() == []


def test_the_chosen_theme_holds_for_site_and_live_page(reader: Reader) -> None:
    reader.open("start/first-page.html")
    light = reader.run("return getComputedStyle(document.body).backgroundColor")
    for _ in range(3):
        if reader.run("return document.body.dataset.theme") == "dark":
            break
        reader.run("document.querySelector('.theme-toggle').click()")
    dark = reader.run("return getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, dark[4:-1].split(","))) < 150 < sum(map(int, light[4:-1].split(",")))
    for frame in reader.browser.find_elements("css selector", "iframe.attention-page"):
        reader.browser.switch_to.frame(frame)
        reader.until("document.documentElement.dataset.theme === 'dark'")
        reader.browser.switch_to.default_content()
    reader.run("localStorage.removeItem('theme')")


def test_every_page_opens_and_asks_for_nothing_from_elsewhere(reader: Reader) -> None:
    pages = sorted(path.relative_to(reader.site) for path in reader.site.rglob("*.html"))
    shown = [page for page in pages if page.parts[0] not in ("_modules", "live")]
    assert len(shown) > 50
    for page in shown:
        reader.open(str(page))
        reader.until("document.readyState === 'complete' && document.querySelector('article')")
        elsewhere = [url for url in reader.addresses() if not url.startswith(LOCAL)]
        complaints = reader.complaints()
        assert (elsewhere, complaints) == ([], []), page
