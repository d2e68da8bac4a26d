"""Packs a layout into one number, in base 7: six values from -1 to 5 (TGraph, Maksimov et al. 2024, section 2.2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.format import LAYOUT_RANK, LAYOUT_SYMBOLS, NO_DIMENSION

_POWERS = LAYOUT_SYMBOLS ** np.arange(LAYOUT_RANK, dtype=np.int32)


def pack(layouts: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """Turns int8[..., 6 k] layouts, values from -1 to 5, into int32[..., k].

    >>> pack(np.array([-1, -1, -1, -1, -1, -1, 1, 0, -1, -1, -1, -1], np.int8)).tolist()
    [0, 9]
    """
    *outer, values = layouts.shape
    digits = layouts.reshape(*outer, values // LAYOUT_RANK, LAYOUT_RANK).astype(np.int32) - NO_DIMENSION
    return np.asarray(digits @ _POWERS, dtype=np.int32)


def unpack(packed: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Turns int32[..., k] from :func:`pack` back into int8[..., 6 k].

    >>> unpack(np.array([9])).tolist()
    [1, 0, -1, -1, -1, -1]
    """
    digits = packed[..., None] // _POWERS % LAYOUT_SYMBOLS + NO_DIMENSION
    *outer, count = packed.shape
    return digits.astype(np.int8).reshape(*outer, count * LAYOUT_RANK)
