"""Expected errors. The command line prints their message, and that of an OSError, without a traceback.

Any other exception is a bug in this package or in a library, and keeps its traceback.
"""

from __future__ import annotations


class InputError(ValueError):
    """An argument, an option or a file is wrong; the message names it and says what to do."""


class WorkError(RuntimeError):
    """The input was right but the work failed: for example a build, a run, or a training that diverged."""


class WrongTVMError(WorkError, ImportError):
    """The installed TVM lacks what the call needs, or no TVM is installed."""


class MissingPackageError(WorkError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


def check_range(what: str, value: float | None, least: float, most: float) -> None:
    """Checks that a value is a number in a range; None passes.

    >>> check_range("seed", 3, 0, 2**31 - 1)

    Raises:
        InputError: the message names the range.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(f"{what} must be between {least:.12g} and {most:.12g}, not {repr(value)[:40]}")
