"""Upload of an export to the Hugging Face hub, with the token that the environment or `hf auth login` holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from repair_ray.run import RunError

_REPO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def check_push(repo: str) -> None:
    """Whether an upload can be tried, looked at before anything is written; asks nobody.

    Raises:
        RunError: a name that is not org/name, or no token.
    """
    from huggingface_hub import get_token

    if not _REPO.fullmatch(repo):
        raise RunError(f"--push {repo}: name a repository as org/name")
    if not get_token():
        raise RunError(f"--push {repo}: no token for the hub; set HF_TOKEN in the environment, or run `hf auth login`")


def push(folder: Path, repo: str, kind: Literal["dataset", "model"], *, public: bool = False) -> str:
    """Upload a folder; a repository that is not there yet is made, private unless `public`. Returns its address.

    Raises:
        RunError: the hub refused, or cannot be reached; what was written stays where it is.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases are what the hub's HTTP client raises where it reaches nobody.
    refused: tuple[Any, ...] = (OSError, *HfHubHTTPError.__bases__)
    api = HfApi()
    try:
        made = api.create_repo(repo, repo_type=kind, private=not public, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=repo, repo_type=kind, commit_message=f"Export of {folder.name}")
    except refused as error:
        raise RunError(f"--push {repo}: {' '.join(str(error).split())}; the export is in {folder}") from None
    return str(made)
