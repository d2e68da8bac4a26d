"""The expected errors; the command line prints their sentence, and that of an OSError, without a traceback.

Any other exception is a bug, in this package or in a library, and keeps its traceback.
"""

from __future__ import annotations


class InputError(ValueError):
    """An argument, an option or a file is wrong; the message names it and says what to do."""


class WorkError(RuntimeError):
    """The input was right but the work failed: for example a build, a run, or a training that diverged."""


class WrongTVM(WorkError, ImportError):
    """The installed TVM lacks what the call needs, or no TVM is installed."""
