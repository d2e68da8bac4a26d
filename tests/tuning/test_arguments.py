from __future__ import annotations

import math
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tuning.arguments import check_cost_model, check_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("population_size", value) for value in (10**14, 7, -1, 8.5, "64", None, True, math.nan, math.inf)),
        *(("batch_size", value) for value in (0, 10**14, 1.5, None)),
        *(("trials", value) for value in (-1, 10**14, 0.5, math.nan)),
        *(("seed", value) for value in (-1, 2**31, 0.5, None)),
        *(("minutes", value) for value in (-1, math.nan, math.inf, 1e9, "5")),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: object) -> None:
    given = {"trials": 8, "minutes": None, "seed": 0, "batch_size": 8, "population_size": 64}
    check_settings(**given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"^{name} must be "):
        check_settings(**{**given, name: value})  # type: ignore[arg-type]


def test_a_missing_file_of_a_cost_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for passes in ("gnn", "xgb", "random", "mlp", str(tmp_path / "a"), tmp_path / "a"):
        check_cost_model(passes)
    with pytest.raises(InputError, match=r"^cost model 'b': neither gnn, xgb, random or mlp nor the path"):
        check_cost_model("b")
    with pytest.raises(InputError, match=r"^cost model 'xgb': neither gnn nor the path of a checkpoint"):
        check_cost_model("xgb", ("gnn",))
