"""A page in headless Chromium, which fails a test on any message of its console and on any request outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed (such as by apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    made = context.new_page()
    said: list[str] = []
    made.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    made.on("pageerror", lambda error: said.append(f"error: {error}"))
    made.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else said.append(asked.url))
    yield made
    context.close()
    assert said == []
