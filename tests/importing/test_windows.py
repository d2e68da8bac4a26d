from __future__ import annotations

import pytest

from tvm_gnn_cost.importing.windows import counted


@pytest.mark.parametrize(
    ("attributes", "image", "windows", "wanted"),
    [
        ({"ceil_mode": 1, "strides": [2, 2], "pads": [1, 0, 1, 0]}, [17, 5], [10, 3], [9, 3]),
        ({"ceil_mode": 1, "strides": [3], "auto_pad": "VALID"}, [6], [3], [2]),
        # Without ceil_mode, padding behind the operand has windows of its own.
        ({"ceil_mode": 0, "strides": [1], "pads": [0, 2]}, [3], [5], [5]),
        ({"ceil_mode": 1, "strides": [2], "auto_pad": "SAME_UPPER"}, [5], [3], [3]),
        ({"ceil_mode": 1}, [4], [3], [3]),
    ],
)
def test_windows_behind_the_padding_are_not_counted(
    attributes: dict[str, object], image: list[int], windows: list[int], wanted: list[int]
) -> None:
    assert counted(attributes, image, windows) == wanted
