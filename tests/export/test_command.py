"""`repair-ray export`: what is refused, and that an export is there whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from repair_ray.cli import app
from tests.export.made_run import make_run
from tests.test_cli import refuse


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path)


def export(*arguments: str) -> str:
    ended = CliRunner().invoke(app, ["export", *arguments])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def entries() -> set[str]:
    return {path.name for path in Path().iterdir()}


def test_an_export_replaces_only_exports() -> None:
    assert "out: 4 pairs, 5 pictures" in export("pairs", "made", "out", "--format", "jsonl")
    again = ("export", "pairs", "made", "out", "--format", "negclip")
    assert "out is there and not empty; take another folder, or replace it with --overwrite" in refuse(*again)
    export(*again[1:], "--overwrite")
    assert {path.name for path in Path("out").iterdir()} == {"README.md", "export.json", "images", "negclip.tsv"}
    line = refuse("export", "pairs", "made", "made", "--format", "jsonl", "--overwrite")
    assert "made holds no export.json, so it is no earlier export" in line and Path("made/config.json").is_file()
    assert "a.jpg is a file" in refuse("export", "pairs", "made", "a.jpg", "--format", "jsonl")
    assert "local folder" in refuse("export", "pairs", "made", "s3://bucket/out", "--format", "jsonl")
    assert entries() == {"made", "a.jpg", "out"}


def test_an_export_that_fails_leaves_nothing() -> None:
    before = entries()
    assert "unknown format 'tar'; known: webdataset, " in refuse("export", "pairs", "made", "out", "--format", "tar")
    assert "there is no run at" in refuse("export", "pairs", "nowhere", "out", "--format", "jsonl")
    assert "round-1/training does not exist yet" in refuse("export", "model", "made", "out")
    Path("a.jpg").unlink()
    line = refuse("export", "pairs", "made", "out", "--format", "jsonl")
    assert "picture A cannot be exported: missing_file" in line
    assert entries() == before - {"a.jpg"}


def test_a_killed_export_does_not_look_whole() -> None:
    kill = (
        "import os, signal\nfrom pathlib import Path\nfrom repair_ray.export.folder import whole_folder\n"
        "with whole_folder(Path('out'), False, {}) as folder:\n"
        "    (folder / 'pairs.jsonl').write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", kill], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not Path("out").exists()
    export("pairs", "made", "out", "--format", "jsonl")


def test_no_upload_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "no/token")
    command = ("export", "pairs", "made", "out", "--format", "jsonl", "--push")
    assert "no token for the hub; set HF_TOKEN" in refuse(*command, "org/name")
    assert "name a repository as org/name" in refuse(*command, "name")
    assert not Path("out").exists()
