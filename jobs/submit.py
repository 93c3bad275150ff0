"""Submit a job to a running Ray cluster, follow it, stop it, ask for it. Needs `pip install -e .[cluster]`.

    export RAY_API_SERVER_ADDRESS=http://head:8265
    python jobs/submit.py jobs/smoke.yaml output=/shared/runs      # uploads config and package, follows the log
    python jobs/submit.py jobs/smoke.yaml --status                 # also: --follow, --stop
    python jobs/submit.py jobs/hncse.yaml --command text

The same command again goes on where the run stopped; while the run is in progress it is refused. With Ray's own
command, from the root of this checkout (`.rayignore` keeps the upload small; count the submission id up each time):

    ray job submit --submission-id smoke-1 --working-dir . -- \\
        python -m repair_ray run jobs/smoke.yaml output=/shared/runs
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the package of this checkout reads the config, as it is what is uploaded

from repair_ray.config import Config, ConfigError, Section, TextConfig, load_section  # noqa: E402

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

PACKAGE = "repair_ray"
COMMANDS: dict[str, tuple[tuple[str, ...], type[Section]]] = {
    "run": (("run",), Config),
    "doctor": (("doctor",), Config),
    "text": (("text", "run"), TextConfig),
    "multimatch": (("multimatch", "build"), Config),
}
# Ray's dashboard takes no larger upload, whatever the rest of Ray takes.
MAX_UPLOAD = 100 * 2**20
IGNORE_FILES = (".gitignore", ".rayignore")
ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
STOP_SECONDS = 120.0
RECONNECTS = 5
DETACHED = 130

out = Console()
err = Console(stderr=True)


class SubmitError(Exception):
    """Something that the person who submits can mend."""


@dataclass(frozen=True)
class Job:
    """What is submitted: the command line, and the name that its submission ids derive from."""

    name: str
    output: str
    config: Path
    command: str
    overrides: tuple[str, ...] = ()

    @property
    def base_id(self) -> str:
        """The submission id without its attempt. A doctor's look at a run is a job of its own."""
        return self.name if self.command != "doctor" else f"{self.name}-doctor"

    def entrypoint(self, config: str, redo: Iterable[str] = ()) -> str:
        """The shell command of the driver; `config` is the config's path in the working directory."""
        words = ["python", "-m", PACKAGE, *COMMANDS[self.command][0], config, *self.overrides]
        return shlex.join([*words, *(part for stage in redo for part in ("--redo", stage))])


@dataclass
class Upload:
    """Files of the working directory, by their path there, and what keeps files out of it."""

    patterns: list[str] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)

    def add(self, path: Path, base: Path) -> None:
        """A file by name, or a folder without what is ignored. Raises SubmitError: it is not there, or empty."""
        from pathspec import GitIgnoreSpec

        spec = GitIgnoreSpec.from_lines(self.patterns)
        where = place(path, base)
        if path.is_file():
            self.files[where] = path
            return
        found = [file for file in sorted(path.rglob("*")) if file.is_file()]
        kept = {f"{where}/{file.relative_to(path).as_posix()}": file for file in found}
        kept = {name: file for name, file in kept.items() if not spec.match_file(name)}
        if not kept:
            raise SubmitError(f"nothing to upload at {path}: no file there that is not ignored")
        self.files |= kept

    def check_size(self) -> int:
        """Bytes of all files, which Ray packs without compression. Raises SubmitError: more than an upload may have."""
        sizes = {name: file.stat().st_size for name, file in self.files.items()}
        total = sum(sizes.values())
        if total > MAX_UPLOAD:
            largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
            listed = ", ".join(f"{name} ({sizes[name] / 2**20:.1f} MiB)" for name in largest)
            raise SubmitError(
                f"the upload has {total / 2**20:.1f} MiB, and Ray takes {MAX_UPLOAD // 2**20}; largest: {listed}. "
                "Leave them out with --exclude, or put them on the storage that the cluster shares"
            )
        return total

    def copy_to(self, folder: Path) -> None:
        """Lay the files out as they are to lie in the working directory."""
        for name, file in self.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def place(path: Path, base: Path) -> str:
    """Where a file goes in the working directory: as it lies below `base`, or by its name alone."""
    path = path.resolve()
    return path.relative_to(base.resolve()).as_posix() if path.is_relative_to(base.resolve()) else path.name


def read_job(config: Path, command: str, overrides: Iterable[str]) -> tuple[Job, Section]:
    """Check the config here, before anything is uploaded. Raises SubmitError, ConfigError."""
    if command not in COMMANDS:
        raise SubmitError(f"--command {command}: choose one of {', '.join(COMMANDS)}")
    overrides = tuple(overrides)
    loaded: Any = load_section(COMMANDS[command][1], config, list(overrides))
    return Job(loaded.name, loaded.output, config, command, overrides), loaded


def check_paths(job: Job, loaded: Section, upload: Upload) -> None:
    """Raises SubmitError for paths that mean something here, and nothing where the driver runs."""
    if not Path(job.output).is_absolute():
        raise SubmitError(
            f"output={job.output} is relative: on the cluster that is a folder of one job on one node. "
            "Set output= to a folder that all nodes see, such as output=/shared/runs"
        )
    for key, value in _strings(loaded.model_dump(mode="json")):
        path = Path(value)
        local = not path.is_absolute() and (len(path.parts) > 1 or path.suffix) and path.exists()
        name = path.as_posix()
        if local and not any(file == name or file.startswith(f"{name}/") for file in upload.files):
            raise SubmitError(f"{key}={value} is a path of this machine: name one that all nodes see, or --include it")


def _strings(tree: Any, key: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _strings(value, f"{key}.{name}" if key else name)
    elif isinstance(tree, list):
        for value in tree:
            yield from _strings(value, key)
    elif isinstance(tree, str):
        yield key, tree


def attempts(base_id: str, jobs: Iterable[JobDetails]) -> list[tuple[int, JobDetails]]:
    """The submissions of one run, oldest first, with their attempt numbers."""
    found = [(re.fullmatch(rf"{re.escape(base_id)}-(\d+)", job.submission_id or ""), job) for job in jobs]
    return sorted(((int(match[1]), job) for match, job in found if match), key=lambda item: item[0])


def next_id(base_id: str, jobs: Iterable[JobDetails]) -> str:
    """The id of the next attempt. Raises SubmitError while one is in progress."""
    tried = attempts(base_id, jobs)
    for _, job in tried:
        if job.status not in ENDED:
            raise SubmitError(
                f"{job.submission_id} is {job.status}: two jobs cannot make one run. Follow it with --follow, end it "
                "with --stop, or take another name="
            )
    return f"{base_id}-{tried[-1][0] + 1 if tried else 1}"


def variables(secrets: Iterable[str], plain: Iterable[str]) -> dict[str, str]:
    """Environment variables of the job. Raises SubmitError; no message holds a secret's value."""
    made = {}
    for name in secrets:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SubmitError("--secret takes the name of an environment variable, not its value")
        if not os.environ.get(name):
            raise SubmitError(f"--secret {name}: it is not set here")
        made[name] = os.environ[name]
    for text in plain:
        name, separator, value = text.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SubmitError(f"--env {text}: write NAME=value")
        made[name] = value
    return made


def connect(address: str | None) -> JobSubmissionClient:
    """A client of the cluster's dashboard. Raises SubmitError."""
    if not address:
        # Ray would look for a cluster that anybody has started on this machine.
        raise SubmitError("no cluster: give --address, or set RAY_API_SERVER_ADDRESS, such as http://head:8265")
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise SubmitError(f"{error}: pip install -e .[cluster]") from None
    try:
        return JobSubmissionClient(address)
    except ConnectionError as error:
        raise SubmitError(f"no answer from {address}: {str(error).splitlines()[0]}") from None
    except AuthenticationError:
        raise SubmitError(
            f"{address} takes no request without its token, or with another one: set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH (see cluster/README.md)"
        ) from None
    except RuntimeError as error:
        raise SubmitError(f"{address}: {error}") from None


def follow(client: JobSubmissionClient, submission_id: str) -> int:
    """Print the log of a job until it ends; the exit status. A broken connection is taken up again where it broke."""
    asyncio.run(_tail(client, submission_id))
    status = client.get_job_status(submission_id)
    out.print(f"{submission_id}: {status}")
    if status == "FAILED":
        err.print(client.get_job_info(submission_id).message or "", markup=False)
    return 0 if status == "SUCCEEDED" else 1


async def _tail(client: JobSubmissionClient, submission_id: str) -> None:
    shown = 0
    for _ in range(RECONNECTS):
        told = 0  # the log comes from its beginning each time
        try:
            async for text in client.tail_job_logs(submission_id):
                new = text[max(0, shown - told) :]
                told += len(text)
                if new:
                    sys.stdout.write(new)
                    sys.stdout.flush()
                    shown = told
        except (OSError, RuntimeError) as error:
            err.print(f"the connection broke: {error}", markup=False)
        if client.get_job_status(submission_id) in ENDED:
            return
        await asyncio.sleep(2)
    raise SubmitError(f"the log of {submission_id} cannot be followed any longer; the job goes on")


def stop(client: JobSubmissionClient, base_id: str) -> None:
    """End the attempts in progress and wait until they have ended. Raises SubmitError."""
    running = [str(job.submission_id) for _, job in attempts(base_id, client.list_jobs()) if job.status not in ENDED]
    if not running:
        raise SubmitError(f"no job of {base_id} is in progress")
    for submission_id in running:
        client.stop_job(submission_id)
        deadline = time.monotonic() + STOP_SECONDS
        while (status := client.get_job_status(submission_id)) not in ENDED:
            if time.monotonic() > deadline:
                raise SubmitError(f"{submission_id} is still {status} after {STOP_SECONDS:g} s")
            time.sleep(0.5)
        out.print(f"{submission_id}: {status}")


def status_table(base_id: str, jobs: Iterable[JobDetails]) -> Table:
    """All attempts at a run."""
    table = Table("submission", "status", "began", "ended", "message")
    for _, job in attempts(base_id, jobs):
        times = [_time(job.start_time), _time(job.end_time)]
        lines = (job.message or "").strip().splitlines() or [""]
        table.add_row(job.submission_id, str(job.status), *times, lines[-1])
    return table


def _time(milliseconds: int | None) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if milliseconds else ""


def gather(job: Job, installed: bool, include: Iterable[Path], exclude: Iterable[str]) -> tuple[Upload, str]:
    """The working directory, and the config's path in it."""
    ignored = [
        line for name in IGNORE_FILES if (ROOT / name).exists() for line in (ROOT / name).read_text().split("\n")
    ]
    upload = Upload([*ignored, *exclude])
    if not installed:
        upload.add(ROOT / PACKAGE, ROOT)
    for path in include:
        upload.add(path, Path.cwd())
    upload.add(job.config, Path.cwd())
    return upload, place(job.config, Path.cwd())


def submit(
    config: Annotated[Path, typer.Argument(help="YAML file of settings")],
    overrides: Annotated[list[str] | None, typer.Argument(help="settings as key=value")] = None,
    command: Annotated[str, typer.Option(help=f"one of {', '.join(COMMANDS)}")] = "run",
    address: Annotated[
        str | None, typer.Option(envvar="RAY_API_SERVER_ADDRESS", help="the dashboard, such as http://head:8265")
    ] = None,
    redo: Annotated[list[str] | None, typer.Option(help="make this stage, and all that hangs on it, again")] = None,
    installed: Annotated[bool, typer.Option("--installed", help="the image has the package: upload none")] = False,
    include: Annotated[list[Path] | None, typer.Option(help="a further file or folder to upload")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="a .gitignore pattern of what not to upload")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="NAME of a variable to forward from here")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=value for driver and workers")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not follow the log")] = False,
    follow_it: Annotated[bool, typer.Option("--follow", help="follow the job of this run")] = False,
    stop_it: Annotated[bool, typer.Option("--stop", help="end the job of this run")] = False,
    status: Annotated[bool, typer.Option("--status", help="list the jobs of this run")] = False,
) -> None:
    """Run a config on a Ray cluster. The same command again goes on where the run stopped."""
    try:
        if sum((follow_it, stop_it, status)) > 1:
            raise SubmitError("take one of --follow, --stop and --status")
        job, loaded = read_job(config, command, overrides or [])
        if follow_it or stop_it or status:
            client = connect(address)
            if stop_it:
                return stop(client, job.base_id)
            jobs = client.list_jobs()
            if status:
                return out.print(status_table(job.base_id, jobs))
            tried = attempts(job.base_id, jobs)
            if not tried:
                raise SubmitError(f"no job of {job.base_id} on this cluster")
            submission_id = str(tried[-1][1].submission_id)
        else:
            upload, config_there = gather(job, installed, include or [], exclude or [])
            check_paths(job, loaded, upload)
            size = upload.check_size()
            given = variables(secret or [], env or [])
            client = connect(address)
            submission_id = next_id(job.base_id, client.list_jobs())
            if secret:
                err.print(
                    f"{', '.join(secret)}: whoever sees Ray's dashboard can read them there. "
                    "Better set them on the nodes (cluster/README.md), and leave --secret out",
                    style="yellow",
                )
            with tempfile.TemporaryDirectory() as folder:
                upload.copy_to(Path(folder))
                client.submit_job(
                    entrypoint=job.entrypoint(config_there, redo or []),
                    submission_id=submission_id,
                    runtime_env={"working_dir": folder, "env_vars": given},
                    metadata={"run": str(Path(job.output) / job.name)},
                )
            out.print(f"{submission_id}: submitted, with {len(upload.files)} files, {size / 2**20:.1f} MiB")
            if no_wait:
                return None
    except (SubmitError, ConfigError, OSError, RuntimeError) as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    raise typer.Exit(_followed(client, submission_id))


def _followed(client: JobSubmissionClient, submission_id: str) -> int:
    try:
        return follow(client, submission_id)
    except KeyboardInterrupt:
        err.print(f"\n{submission_id} goes on. The same command with --follow shows it again, with --stop ends it.")
        return DETACHED
    except (SubmitError, OSError, RuntimeError) as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    typer.run(submit)
