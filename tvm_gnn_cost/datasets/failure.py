"""The reasons why a program has no latency."""

from __future__ import annotations

from enum import StrEnum


class Failure(StrEnum):
    """Kind of a failed measurement, as written in graph stores and measure records.

    >>> Failure("build-timeout") is Failure.BUILD_TIMEOUT
    True
    """

    INSTANTIATION_ERROR = "instantiation-error"
    BUILD_ERROR = "build-error"
    BUILD_TIMEOUT = "build-timeout"
    RUN_ERROR = "run-error"
    RUN_TIMEOUT = "run-timeout"
    WRONG_ANSWER = "wrong-answer"
    UNKNOWN = "unknown"
