"""Explains programs that the installed TVM's scheduler sampled and that this machine measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning.explain import ExplainResult, explain, write_page

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def explained(measured: Path) -> ExplainResult:
    return explain(measured)


def test_the_fastest_and_the_slowest_program_are_explained(explained: ExplainResult) -> None:
    fast, slow = explained.programs
    assert (fast.rank, slow.rank) == (1, explained.measured)
    assert fast.throughput == 1
    assert fast.seconds <= slow.seconds
    assert slow.throughput == pytest.approx(fast.seconds / slow.seconds)
    assert all(0 < one.predicted < 1 for one in explained.programs)
    assert json.loads(json.dumps(explained.as_json()))["measured"] == explained.measured


def test_the_shares_of_a_programs_lines_are_its_whole_cost(explained: ExplainResult) -> None:
    for program in explained.programs:
        shares = [line.share for line in program.lines if line.share is not None]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert all(one >= 0 for one in shares)


def test_loops_and_stores_are_told_apart(explained: ExplainResult) -> None:
    for program in explained.programs:
        for line in program.lines:
            text = line.text.strip()
            assert (line.trees is not None) <= (line.kept is not None)
            if text.startswith("for "):
                assert line.kept is not None, text
                assert line.trees is None, text
            if line.trees is not None:
                assert " = " in text, text
            if line.kept is not None:
                assert 0 <= line.kept <= explained.poolings
        assert any(line.kept for line in program.lines)
        assert any(line.trees is not None for line in program.lines)


def test_what_the_trees_add_is_their_score(measured: Path, explained: ExplainResult) -> None:
    opened = scheduler().measured(measured, jobs=1)
    scorer = CostModel.load().scorer
    found = []
    for _, record in opened.records():
        listing = opened.listing(record)
        (score,) = scorer.tree_scores(listing.graphs)
        found.append((opened.seconds(record), score))
    for program in explained.programs:
        added = sum(line.trees for line in program.lines if line.trees is not None)
        assert added == pytest.approx(dict(found)[program.seconds], rel=1e-4, abs=1e-4)


def test_a_task_is_chosen_by_number_or_name(measured: Path, explained: ExplainResult) -> None:
    other = explain(measured, task="2", ranks=[2])
    assert other.task != explained.task
    assert [one.rank for one in other.programs] == [2]
    assert explain(measured, task=other.task, ranks=[-2]).programs[0].rank == other.measured - 1
    with pytest.raises(InputError, match="there is no task 9"):
        explain(measured, task="9")
    with pytest.raises(InputError, match="has 'nosuch' in its name; the slowest tasks are "):
        explain(measured, task="nosuch")
    with pytest.raises(InputError, match=r"valid programs; there is no rank 77"):
        explain(measured, ranks=[77])
    with pytest.raises(InputError, match="there is no such checkpoint"):
        explain(measured, cost_model="nosuch")


def test_the_page_holds_both_programs_and_loads_nothing(explained: ExplainResult, tmp_path: Path) -> None:
    write_page(explained, tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text()
    assert page.count("<section>") == 2
    assert "src=" not in page
    assert "http" not in page
    assert f"{100 * np.nanmax([line.share or 0 for line in explained.programs[0].lines]):.1f} %" in page


def test_a_record_that_does_not_belong_to_its_task_is_named(measured: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(measured, tmp_path / "broken"))
    if scheduler().name == "meta-schedule":
        file = broken / "database_tuning_record.json"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        softmax = next(i for i, line in enumerate(lines) if line[0] != lines[0][0])
        lines[0][1][0] = lines[softmax][1][0]
        lines = lines[:1]
        (broken / "measurements.jsonl").unlink(missing_ok=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        one, other = sorted((broken / "measure_records" / "cpu").iterdir())
        (entry, *_), (wrong, *_) = (
            [json.loads(line) for line in file.read_text().splitlines()] for file in (one, other)
        )
        entry["i"][1] = wrong["i"][1]
        one.write_text(json.dumps(entry) + "\n")
        other.unlink()
    with pytest.raises(InputError):
        explain(broken, ranks=[1])
