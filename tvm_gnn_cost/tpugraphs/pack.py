"""Layouts in base 7: six values from -1 to 5 in one int32 (TGraph, Maksimov et al. 2024, section 2.2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_BASE, _DIGITS = 7, 6
_POWERS = _BASE ** np.arange(_DIGITS, dtype=np.int32)


def pack(layouts: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """int8[..., 6 k] of values from -1 to 5 becomes int32[..., k]."""
    digits = layouts.reshape(*layouts.shape[:-1], -1, _DIGITS).astype(np.int32) + 1
    return np.asarray(digits @ _POWERS, dtype=np.int32)


def unpack(packed: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """The inverse: int32[..., k] becomes int8[..., 6 k]."""
    digits = packed[..., None] // _POWERS % _BASE - 1
    return digits.astype(np.int8).reshape(*packed.shape[:-1], -1)
