"""How sizes and errors are written in a finding."""

from __future__ import annotations

GIB = 2**30
LONGEST = 500


def size(amount: float) -> str:
    """Bytes as `1.5 GiB`, or as `40 MiB` below a tenth of a GiB."""
    return f"{amount / GIB:.1f} GiB" if amount >= GIB / 10 else f"{amount / 2**20:.0f} MiB"


def one_line(text: object, longest: int = LONGEST) -> str:
    """A text or an error as one line; of a longer one both ends, as a traceback's last line names the error."""
    line = " ".join(str(text).split()) or type(text).__name__
    return line if len(line) <= longest else f"{line[: longest // 3]} ... {line[-longest * 2 // 3 :]}"
