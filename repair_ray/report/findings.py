"""What a check found, one line of `repair-ray doctor`, and the table of these lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from repair_ray.report.plain import safe_text, titled

State = Literal["ok", "warning", "failed", "skipped"]
STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


@dataclass(frozen=True)
class Finding:
    """What was checked, how it stands, what was found, and what to do about it."""

    check: str
    state: State
    found: str
    advice: str = ""


def findings_table(findings: Sequence[Finding]) -> Table:
    """What the doctor found, one row a check."""
    table = titled("What a run of this config needs")
    table.add_column("check", overflow="fold", min_width=12)
    table.add_column("state", no_wrap=True)
    table.add_column("found", overflow="fold", min_width=20)
    table.add_column("what to do", overflow="fold", min_width=12)
    for finding in findings:
        table.add_row(
            safe_text(finding.check),
            Text(finding.state, STYLES[finding.state]),
            safe_text(finding.found),
            safe_text(finding.advice),
        )
    counts = {state: sum(finding.state == state for finding in findings) for state in STYLES}
    others = ", ".join(f"{count} {state}" for state, count in counts.items() if count and state != "failed")
    table.caption = safe_text(
        f"{counts['failed']} failed, {others}" if counts["failed"] else f"Nothing failed: {others}"
    )
    table.caption_justify = "left"
    return table
