"""The batch script: clean, and what it starts on a made allocation. Ray itself is replaced: it would end other Rays."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cluster.manifests import FOLDER
from tests.cluster.tools import tool

SCRIPT = FOLDER / "slurm.sh"
PROGRAMS = {
    "scontrol": 'echo "node-a"; echo "node-b"',
    # One call asks for the head's address, the other starts Ray on all nodes.
    "srun": """case "$*" in
                 *hostname*) echo "127.0.1.1 fe80::1 10.0.0.7" ;;
                 *) while [[ "$1" == --* ]]; do shift; done; "$@" ;;
               esac""",
    "ray": """{ printf '%s\\n' "$@"; echo "mode $RAY_AUTH_MODE"; stat -c 'token %a %s' "$RAY_AUTH_TOKEN_PATH"
              echo "wait $RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT"; } > "$CALLS"; exit "${CODE:-0}\"""",
}


@pytest.fixture
def allocation(tmp_path: Path) -> dict[str, str]:
    """The variables of a job, with programs that stand in for Slurm's and Ray's, and an environment to activate."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, body in PROGRAMS.items():
        (binaries / name).write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        (binaries / name).chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text(f"export PATH={binaries}:$PATH\n", encoding="utf-8")
    return {
        "PATH": os.environ["PATH"],
        "CALLS": str(tmp_path / "calls"),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": "70123",
        "SLURM_JOB_NODELIST": "node-[a-b]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_ON_NODE": "64",
        "SLURM_GPUS_ON_NODE": "8",
    }


def run(variables: dict[str, str], *arguments: str, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(script), *arguments], env=variables, capture_output=True, text=True, check=False, timeout=60
    )


def test_no_lint() -> None:
    assert SCRIPT.stat().st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    ended = subprocess.run([tool("shellcheck"), str(SCRIPT)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_a_broken_script_is_found(tmp_path: Path) -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    (tmp_path / "open.sh").write_text(text.replace("\nfi\n", "\n", 1), encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(tmp_path / "open.sh")], capture_output=True, check=False).returncode
    (tmp_path / "bare.sh").write_text(text.replace('"$address"', "$address $(ls *)"), encoding="utf-8")
    ended = subprocess.run([tool("shellcheck"), str(tmp_path / "bare.sh")], capture_output=True, text=True, check=False)
    assert ended.returncode and "SC2086" in ended.stdout


def test_every_node_starts_ray_and_the_first_the_run(allocation: dict[str, str]) -> None:
    ended = run(allocation, "jobs/flickr30k.yaml", "name=a b", "training.lr=1e-6")
    assert ended.returncode == 0, ended.stderr
    called = Path(allocation["CALLS"]).read_text(encoding="utf-8").splitlines()
    address = "10.0.0.7:30123"  # 20000 + 70123 modulo 20000; the loopback and IPv6 addresses are left aside
    node = ["--address", address, "--min-nodes", "2", "--num-cpus", "64", "--num-gpus", "8"]
    driver = ["env", f"RAY_ADDRESS={address}", "python", "-m", "repair_ray", "run"]
    assert called[:-3] == ["symmetric-run", *node, "--", *driver, "jobs/flickr30k.yaml", "name=a b", "training.lr=1e-6"]
    assert called[-3:] == ["mode token", "token 600 64", "wait 600"]
    assert not list(Path(allocation["SLURM_SUBMIT_DIR"]).glob(".ray-token*"))


def test_the_exit_code_is_the_run_s(allocation: dict[str, str]) -> None:
    assert run(allocation | {"CODE": "3"}, "jobs/flickr30k.yaml").returncode == 3
    assert not list(Path(allocation["SLURM_SUBMIT_DIR"]).glob(".ray-token*"))


def test_it_says_how_it_is_used(allocation: dict[str, str]) -> None:
    ended = run(allocation)
    assert ended.returncode == 2 and "usage: sbatch" in ended.stderr
    outside = run({key: value for key, value in allocation.items() if key != "SLURM_SUBMIT_DIR"}, "a.yaml")
    assert outside.returncode != 0 and "start this with sbatch" in outside.stderr
