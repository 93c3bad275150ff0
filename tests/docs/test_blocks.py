"""Every block of the README and of docs/ does what it says, or says why nobody tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from repair_ray.config import ConfigError
from tests.docs.blocks import ROOT, blocks_of, check_config, run_page

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GUIDES = [page for page in PAGES[1:] if blocks_of(page)]
LONG = [page for page in GUIDES if any(block.minutes for block in blocks_of(page))]


def names(page: Path) -> str:
    return page.stem


def test_a_page_is_taken_apart(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first = "a\n```bash\ntrue\n```\n<!-- not run: no GPU -->\n\n```python file=x.py\n1\n```\n"
    page.write_text(first + "<!-- run: minutes -->\n```yaml\na: 1\n```\n<!-- not run: -->\n```\nx\n```\n")
    found = [(b.line, b.language, b.file, b.not_run, b.minutes, b.held) for b in blocks_of(page)]
    assert found == [
        (2, "bash", None, False, False, True),
        (7, "python", "x.py", True, False, True),
        (11, "yaml", None, False, True, True),
        (15, "", None, False, False, False),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\nfalse\ntrue\n```\n", "page.md:1 ended with 1"),
        ("```python\nassert False, 'no'\n```\n", "no"),
        ("```yaml\ntraining: {sttps: 1}\n```\n", "unknown key 'training.sttps'"),
        ("```yaml file=../x.yaml\na: 1\n```\n", "page.md:1"),
    ],
)
def test_a_block_that_does_not_do_what_it_says_fails(tmp_path: Path, text: str, said: str) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    page.write_text(text)
    with pytest.raises(AssertionError, match=said):
        run_page(page, folder, minutes=False)
    assert not (tmp_path / "x.yaml").exists()


def test_blocks_of_a_page_share_a_folder(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first = "```python file=kept.py\nx = 3\n```\n"
    page.write_text(first + "```python\nimport kept\nassert kept.x == 3\n```\n```bash\n[ -f kept.py ]\n```\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    assert run_page(page, folder, minutes=False) == 3


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    loose = [block.place for block in blocks_of(page) if not block.not_run and not block.held]
    assert not loose, f"neither bash, python or yaml, nor <!-- not run: reason -->: {', '.join(loose)}"


def test_the_readmes_configs_are_configs() -> None:
    found = [block for block in blocks_of(PAGES[0]) if block.language == "yaml" and not block.not_run]
    assert len(found) >= 5
    for block in found:
        try:
            check_config(block.text)
        except ConfigError as error:
            pytest.fail(f"{block.place}: {error}")


def test_the_readme_says_of_each_command_why_it_is_not_run() -> None:
    assert all(block.not_run for block in blocks_of(PAGES[0]) if block.language != "yaml")


@pytest.mark.parametrize("page", GUIDES, ids=names)
def test_quick_blocks(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path, minutes=False)


@pytest.mark.integration
@pytest.mark.whole_runs
@pytest.mark.parametrize("page", LONG, ids=names)
def test_whole_pages(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path, minutes=True) > 1
