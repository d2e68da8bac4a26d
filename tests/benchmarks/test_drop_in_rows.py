"""The comparison of TVM's own searches with different cost models."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import tests.benchmarks.test_quick  # noqa: F401  (puts the scripts on sys.path)

search_curves = importlib.import_module("search_curves")

# The page of the results is made in this environment.
pytestmark = pytest.mark.needs("s_tir")


def run(
    model: str, seed: int, improvements: list[list[float]], again: float | None, task: str = "conv", machine: str = "a"
) -> dict[str, Any]:
    return {
        **{"task": task, "model": model, "seed": seed, "machine": machine, "improvements": improvements},
        "wall_clock_s": improvements[-1][0],
        "phases_s": {},
        "again": None if again is None else {"latency_s": again},
    }


RUNS = [
    run("XGBModel()", 0, [[1.0, 1, 8.0], [3.0, 60, 4.0], [9.0, 200, 2.0]], 2.0),
    run("XGBModel()", 1, [[1.0, 1, 8.0], [8.0, 200, 8.0]], 8.0),
    run("GNNCostModel()", 0, [[1.0, 1, 2.0], [4.0, 30, 1.0], [18.0, 200, 1.0]], 1.0),
    run("GNNCostModel()", 1, [[2.0, 1, 8.0], [16.0, 200, 8.0]], 4.0),
]


def test_rows_are_geometric_means_over_tasks_and_seeds() -> None:
    rows = search_curves.drop_in_rows(RUNS, "XGBModel()")
    assert len(rows[0]) == len(search_curves.DROP_IN_COLUMNS)
    assert rows[0] == ("XGBModel()", "1.00", "1.00", "1.00", "1.00", "1.50", "1.00", "1.00", "1.00", "2")
    assert rows[1] == ("GNNCostModel()", "0.50", "0.50", "0.50", "0.71", "0.75", "0.50", "0.50", "2.00", "2")


def test_searches_without_their_baseline_or_a_second_measurement_do_not_count() -> None:
    unmeasured = run("GNNCostModel()", 1, RUNS[3]["improvements"], None)
    (row,) = search_curves.drop_in_rows([RUNS[0], RUNS[2], unmeasured], "XGBModel()")[1:]
    assert row[-1] == "1"
    assert search_curves.drop_in_rows(RUNS[2:], "XGBModel()") == []


def test_rows_of_tasks_compare_searches_of_one_task() -> None:
    slower = [
        run("XGBModel()", 0, [[1.0, 200, 1.0]], 1.0, "softmax"),
        run("GNNCostModel()", 0, [[1.0, 200, 3.0]], 3.0, "softmax"),
    ]
    first, second = search_curves.drop_in_rows_of_tasks([*RUNS, *slower], "GNNCostModel()", "XGBModel()")
    assert first == ("conv", *search_curves.drop_in_rows(RUNS, "XGBModel()")[1][1:])
    assert (second[0], second[4], second[-1]) == ("softmax", "3.00", "1")


def test_searches_are_compared_on_one_processor() -> None:
    elsewhere = [{**one, "machine": "b"} for one in RUNS]
    faster = [{**one, "again": {"latency_s": one["again"]["latency_s"] / 8}} for one in elsewhere]
    twice = search_curves.drop_in_rows([*RUNS, *faster], "XGBModel()")
    assert [row[:-1] for row in twice] == [row[:-1] for row in search_curves.drop_in_rows(RUNS, "XGBModel()")]
    assert [row[-1] for row in twice] == ["4", "4"]
    assert search_curves.drop_in_rows([RUNS[0], elsewhere[2]], "XGBModel()")[1:] == []


def test_mean_curves_begin_where_all_searches_have_a_program() -> None:
    curves = search_curves.relative_curves(RUNS, "trials")
    x, y = curves["GNNCostModel()"]
    # Relative to the best of the task, 1: geometric means of 2 and 8, of 1 and 8.
    assert (x, y) == ([1, 30, 200], pytest.approx([4.0, 8**0.5, 8**0.5]))
    x, y = search_curves.relative_curves(RUNS, "seconds")["GNNCostModel()"]
    assert (x[0], y[0]) == (2.0, pytest.approx(4.0))
    assert set(search_curves.relative_curves([*RUNS, run("Other", 2, [[1, 1, 1.0]], 1.0)], "trials")) == set()


def test_mean_curves_are_relative_to_the_best_of_the_machine() -> None:
    searches = [
        run("GNNCostModel()", 0, [[1.0, 1, 2.0], [2.0, 2, 1.0]], 1.0),
        run("GNNCostModel()", 1, [[1.0, 1, 20.0], [2.0, 2, 10.0]], 10.0, machine="b"),
    ]
    assert search_curves.relative_curves(searches, "trials")["GNNCostModel()"] == ([1, 2], pytest.approx([2.0, 1.0]))


def test_searches_are_compared_with_the_fastest_program_of_all_on_a_processor() -> None:
    elsewhere = run("XGBModel()", 0, [[1.0, 1, 9.0], [2.0, 16, 3.0]], None, machine="b")
    rows = search_curves.rows_above_fastest([*RUNS, elsewhere])
    assert all(len(row) == len(search_curves.ABOVE_FASTEST_COLUMNS) for row in rows)
    # Of the tasks' best, 1 and 3: geometric means of 8, 8 and 3, of 8, 8 and 1, of 4, 8 and 1, and of 2, 8 and 1.
    assert rows[0] == ("XGBModel()", "5.77", "4.00", "3.17", "2.52", "3")
    assert rows[1] == ("GNNCostModel()", "4.00", "4.00", "2.83", "2.83", "2")


def test_the_figure_of_the_documentation_has_a_line_for_each_model(tmp_path: Path) -> None:
    (tmp_path / "docs" / "images").mkdir(parents=True)
    result = {"benchmark": "drop_in-auto-scheduler", "metrics": {"runs": RUNS}}
    importlib.import_module("drop_in").write_figure(result, tmp_path)
    drawing = (tmp_path / "docs" / "images" / "drop-in-auto-scheduler.svg").read_text()
    assert "currentColor" not in drawing
    # The first colours of matplotlib's palette; each line has one in the legend, too.
    assert [drawing.count(f"stroke: {color}") for color in ("#1f77b4", "#ff7f0e", "#2ca02c")] == [2, 2, 0]


def test_the_clock_of_a_search_starts_after_the_imports() -> None:
    late = run("XGBModel()", 0, [[91.0, 1, 8.0], [99.0, 200, 2.0]], 2.0) | {
        "phases_s": {"building": 7.0, "running": 2.0}
    }
    runs = [late, RUNS[2]]
    assert search_curves.drop_in_rows(runs, "XGBModel()")[1][-2] == "2.00"
    x, y = search_curves.relative_curves(runs, "seconds")["XGBModel()"]
    assert (x, y) == ([1.0, 9.0], pytest.approx([8.0, 2.0]))
    assert late["improvements"][0][0] == 91.0
