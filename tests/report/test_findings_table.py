"""The doctor's table: every finding as it is, and how many of each state there are."""

from __future__ import annotations

import io

from rich.console import Console

from repair_ray.report.findings import Finding, findings_table


def shown(*findings: Finding) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(findings_table(findings))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_findings_are_shown_as_they_are() -> None:
    text = shown(
        Finding("packages", "ok", "all there"),
        Finding("endpoint", "failed", "says [red]no[/red] \x1b[2J", "start it"),
        Finding("memory", "skipped", "unknown"),
        Finding("memory", "skipped", "unknown too"),
    )
    assert "says [red]no[/red] ·[2J" in text, "neither markup nor control characters count"
    assert [line.split() for line in text.splitlines() if line.startswith("packages")] == [
        ["packages", "ok", "all", "there"]
    ]
    assert "start it" in text
    assert "1 failed, 1 ok, 2 skipped" in text


def test_nothing_failed() -> None:
    assert "Nothing failed: 2 ok, 1 warning" in shown(
        Finding("a", "ok", "x"), Finding("b", "warning", "x"), Finding("c", "ok", "x")
    )
