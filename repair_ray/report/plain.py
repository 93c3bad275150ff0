"""How every table in the terminal looks, and how outside text is shown in it."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text


def titled(title: str) -> Table:
    """An empty table with its title above it."""
    table = Table(title=f"\n{title}", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.title_justify, table.title_style = "left", "bold"
    return table


def safe_text(value: object, style: str = "") -> Text:
    """A value as text, with a dot for each character that is not printable."""
    # Reasons quote outside text, which must not move the cursor or colour the terminal.
    return Text("".join(letter if letter.isprintable() else "·" for letter in str(value)), style)
