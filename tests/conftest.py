"""What tests of several folders need."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed (such as by apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def allowed() -> tuple[str, ...]:
    """How the addresses begin that `page` may ask for."""
    return ("file:", "data:")


@pytest.fixture
def page(browser: Any, allowed: tuple[str, ...]) -> Iterator[Any]:
    """A page that fails a test on any message of its console and on any request outside."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    made = context.new_page()
    said: list[str] = []
    made.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    made.on("pageerror", lambda error: said.append(f"error: {error}"))
    made.on("request", lambda asked: None if asked.url.startswith(allowed) else said.append(asked.url))
    yield made
    context.close()
    assert said == []


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody can write to, root included."""
    folder = tmp_path / "read_only"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here, and root can write to every folder")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URI of a bucket of an S3 server on this machine; what is started now finds it by its environment."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        maker = fs.S3FileSystem(endpoint_override=environment["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
        maker.create_dir("states")
        yield "s3://states/runs"
    store.stop()
