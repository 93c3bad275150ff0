"""How commands end: errors that a person can mend are one line and exit code 2."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console

from repair_ray.config import ConfigError

errors = Console(stderr=True)


def guarded(work: Callable[[], None], stopped: str = "stopped; the same command goes on from here") -> None:
    """Run a command; the errors that a person can mend end in one line and exit code 2. Ctrl-C says `stopped`."""
    try:
        work()
    except KeyboardInterrupt:
        _fail(stopped, 130)
    except ConfigError as error:
        _fail(str(error), 2)
    except Exception as error:
        from repair_ray.data.records import DataError
        from repair_ray.engines.retriever import RetrieverError
        from repair_ray.run import RunError

        if isinstance(error, DataError | RetrieverError | RunError):
            _fail(str(error), 2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _fail(f"the disk is full: {error.strerror}; free space and start the same command again", 2)
        if isinstance(error, OSError):
            _fail(f"{error.strerror or error}: {error.filename or ''}", 2)
        raise


def _fail(message: str, code: int) -> NoReturn:
    errors.print(f"[bold red]error:[/] {_escaped(message)}", soft_wrap=True)
    sys.exit(code)


def _escaped(message: str) -> str:
    from rich.markup import escape

    return escape(message)
