"""The quick run of every benchmark that the installed TVM can run; the figures of these runs mean nothing."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.old_database import SIZES, THREADS, write_old_database
from tvm_gnn_cost import InputError, WorkError
from tvm_gnn_cost.schedulers import scheduler

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# The scripts import each other by their bare names.
sys.path.insert(0, str(BENCHMARKS))

#: A target for benchmarks that search on a GPU.
_CPU = '{"kind": "llvm", "num-cores": 2}'


def quick_run(name: str, metrics: Iterable[str], path: Path, *options: str) -> dict[str, Any]:
    """Runs a benchmark in this process; returns the metrics that it wrote to ``path``, these among them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, "--quick", "--json", str(path), *options])
        importlib.import_module(name).main()
    result = json.loads(path.read_text())
    assert set(result) == {"benchmark", "machine", "versions", "settings", "metrics"}
    assert result["benchmark"] in (name, f"{name}-auto-scheduler")
    written: dict[str, Any] = result["metrics"]
    assert set(metrics) <= set(written)
    return written


@pytest.mark.needs("tvm")
def test_what_a_user_can_mend_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = importlib.import_module("common")

    def benchmark(_arguments: argparse.Namespace, _runs: Path) -> None:
        raise InputError("models/none: no such checkpoint")

    monkeypatch.setattr(sys, "argv", ["search.py"])
    with pytest.raises(SystemExit) as stopped:
        common.run_saved(common.parser("A search."), "search", benchmark)
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "search.py: models/none: no such checkpoint\n"


@pytest.mark.needs("tvm")
def test_docs_of_a_broken_result_name_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = importlib.import_module("common")
    path = tmp_path / "result.json"
    path.write_text('{"benchmark": "engines", "metr')
    monkeypatch.setattr(sys, "argv", ["engines.py", "--json", str(path), "--docs", str(tmp_path)])

    def never(*_arguments: Any) -> None:
        raise AssertionError("nothing can be run or written")

    with pytest.raises(SystemExit) as stopped:
        common.run_saved(common.parser("Engines."), "engines", never, never)
    assert stopped.value.code == 2
    assert f"{path} is not the JSON of a result (Unterminated string" in capsys.readouterr().err


@pytest.mark.slow_with("auto_scheduler")
@pytest.mark.needs("tvm")
def test_accuracy_says_the_metrics_of_every_model(tmp_path: Path) -> None:
    rows = quick_run("accuracy", ["models", "networks"], tmp_path / "result.json")["models"]
    assert {"gnn", "xgb", "mlp", "random", "constant", "node-count"} <= set(rows)
    for metric in ("huber", "rmse", "pairwise_accuracy", "kendall_tau", "top1", "top5"):
        assert set(rows["gnn"][metric]) == {"mean", "std"}
    assert rows["constant"]["pairwise_accuracy"]["mean"] == 0.5


@pytest.mark.slow_with("auto_scheduler")
@pytest.mark.needs("tvm")
def test_updates_compares_each_variant_with_none(tmp_path: Path) -> None:
    found = quick_run("updates", ["parts"], tmp_path / "result.json")
    everything = found["parts"]["all"]
    assert everything["tasks"] > 0
    assert list(everything["models"])[:2] == ["no updates", "updates"]
    assert sum(part["tasks"] for name, part in found["parts"].items() if name != "all") == everything["tasks"]


@pytest.mark.needs("s_tir")
def test_by_task_has_every_task_and_program(tmp_path: Path) -> None:
    found = quick_run("by_task", ["models", "tasks", "throughput"], tmp_path / "result.json")
    throughput = found["throughput"]
    assert list(found["models"]) == ["gnn", "xgb"]
    assert list(throughput) == ["measured", "gnn", "xgb"]
    assert len({len(values) for values in throughput.values()}) == 1
    assert sum(task["programs"] for task in found["tasks"]) <= len(throughput["measured"])
    assert all(0 <= task[model] <= 1 for task in found["tasks"] for model in found["models"])
    assert all(0 <= value <= 1 for values in (throughput["measured"], throughput["gnn"]) for value in values)
    assert set(throughput["measured"]) > {1.0}


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_curves_has_a_point_for_every_share(tmp_path: Path) -> None:
    models = quick_run("curves", ["models"], tmp_path / "result.json", "--models", "gnn", "xgb")["models"]
    for points in models.values():
        half, whole, two = sorted(points, key=lambda one: (one["share_of_tasks"], one["programs_per_task"] or 0))
        assert half["tasks"] < whole["tasks"] == two["tasks"]
        assert two["programs"] <= 2 * two["tasks"] < whole["programs"]


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_new_processor_leaves_it_out(tmp_path: Path) -> None:
    options = ("--processors", "cascadelake")
    (points,) = quick_run("new_processor", ["parts"], tmp_path / "result.json", *options)["parts"].values()
    counts = {point["model"]: (point["tasks"], point["programs"]) for point in points}
    assert list(counts) == ["other processors", "fine-tuned", "new model", "xgb", "all processors"]
    assert counts["fine-tuned"] == counts["new model"] == counts["xgb"]
    assert counts["other processors"] < counts["all processors"]


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_cuda_ranks_the_programs_of_other_tasks(tmp_path: Path) -> None:
    write_old_database(tmp_path)
    found = quick_run("cuda_programs", ["models", "programs"], tmp_path / "result.json", str(tmp_path))
    count = len(SIZES) * len(THREADS)
    assert found["programs"] == {
        "tasks": len(SIZES),
        "programs": count,
        "valid": count,
        "replayed": count,
        "problems": {},
    }
    models = ["gnn", "network alone", "trees alone", "without gpu", "xgb", "xgb of all", "node-count", "random"]
    assert list(found["models"]) == models
    assert all(0 <= found["models"][name]["pairwise_accuracy"]["mean"] <= 1 for name in models)


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_gpu_training_times_and_compares_devices(tmp_path: Path) -> None:
    write_old_database(tmp_path)
    metrics = ("scoring", "epoch_s", "models")
    found = quick_run("gpu_training", metrics, tmp_path / "result.json", str(tmp_path), "--accelerators", "cpu")
    assert found["scoring"]["cpu"]["difference"] == 0
    assert all(seconds > 0 for times in found["epoch_s"].values() for seconds in times)
    assert list(found["models"]) == ["cpu"]
    assert 0 <= found["models"]["cpu"]["pairwise_accuracy"]["mean"] <= 1


@pytest.mark.slow
@pytest.mark.needs("tvm")
def test_drop_in_searches_with_each_model_and_measures_right_programs(tmp_path: Path) -> None:
    runs = quick_run("drop_in", ["runs"], tmp_path / "result.json")["runs"]
    ours = ["GNNCostModel()", "GNNCostModel() without updates", "its trees alone", "its network alone"]
    assert [run["model"] for run in runs] == [*ours, "XGBModel()"]
    assert all(run["best_s"] > 0 and run["wall_clock_s"] > 0 and run["improvements"] for run in runs)
    assert all(run["again"]["difference"] < 1e-5 and run["again"]["latency_s"] > 0 for run in runs)


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_simulated_search_learns_from_measured_programs_and_searches(tmp_path: Path) -> None:
    found = quick_run("simulated_search", ["surrogates", "runs"], tmp_path / "result.json")
    assert all(5 <= surrogate["programs"] <= 8 for surrogate in found["surrogates"].values())
    assert [run["model"] for run in found["runs"]] == ["GNNCostModel()", "without exploration"]
    # The surrogate has learned latencies of microseconds, and a search ends after four programs.
    assert all(1e-7 < seconds < 1e-2 for run in found["runs"] for _, _, seconds in run["improvements"])
    assert all(run["improvements"][-1][1] == 4 for run in found["runs"])


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_gpu_search_measures_right_programs_with_every_model(tmp_path: Path) -> None:
    write_old_database(tmp_path)
    models = ["gnn-a100", "xgb-a100", "xgb", "random"]
    options = (str(tmp_path), "--target", _CPU, "--models", *models)
    found = quick_run("gpu_search", ("against", "runs", "measured_again"), tmp_path / "result.json", *options)
    assert [run["model"] for run in found["runs"]] == models
    assert found["runs"][0]["failed_batches"] == 0
    assert [len(run["latencies_s"]) for run in found["runs"]] == [2] * 4
    assert [row["model"] for row in found["measured_again"]] == models
    assert all(row["difference"] < 1e-5 and row["latency_s"] > 0 for row in found["measured_again"])
    settings = json.loads((tmp_path / "result.json").read_text())["settings"]
    assert (settings["planned"], settings["finished"], settings["models"], settings["seeds"]) == (4, 4, models, 1)


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_gpu_search_does_not_call_a_search_finished_that_ran_out_of_time(tmp_path: Path) -> None:
    gpu_search = importlib.import_module("gpu_search")
    sizes = {"trials": 4, "trials_per_round": 2, "population_size": 16, "valid_samples": 8}
    options = argparse.Namespace(quick=True, tasks=[], target=_CPU, deadline=0.0, **sizes)
    run = ("matrix product", "random", 0)
    assert gpu_search._search_and_save(*run, options, tmp_path / "run.json") == "not started, as the time ran out"
    with pytest.raises(WorkError, match="ended after 2 trials"):
        gpu_search.search(gpu_search.single_tasks.SMALL[run[0]], *run[1:], options, tmp_path / "run.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow_with("auto_scheduler")
@pytest.mark.needs("tvm")
def test_search_compares_the_runs(tmp_path: Path) -> None:
    found = quick_run("search", ("against", "runs"), tmp_path / "result.json")
    baselines = ["xgb", "tvm"] if scheduler().name == "meta-schedule" else ["xgb"]
    assert [run["model"] for run in found["runs"]] == ["gnn", "xgb", "random", *baselines[1:]]
    assert list(found["against"]) == baselines
    assert all(against["gnn"]["final_latency"] > 0 for against in found["against"].values())


@pytest.mark.slow
@pytest.mark.needs("tvm")
def test_soak_has_every_minute_of_the_search(tmp_path: Path) -> None:
    found = quick_run("soak", ("medians", "by_minute"), tmp_path / "result.json")
    columns = found["by_minute"]
    assert len({len(values) for values in columns.values()}) == 1
    assert columns["trials"] == sorted(set(columns["trials"]))
    assert columns["trials"][-1] >= 16
    assert set(found["medians"]) == {"memory_mib", "workers_mib", "round_s", "prediction_ms"}
    assert all(value > 0 for name in found["medians"] for value in columns[name])


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_end_to_end_tunes_to_every_budget(tmp_path: Path) -> None:
    found = quick_run("end_to_end", ["milliseconds", "points"], tmp_path / "result.json")
    points = found["points"]
    # Whether anything is measured in 0.1 minutes depends on the machine.
    assert [point["minutes"] for point in points] == [0, 0.1]
    assert points[0]["trials"] == 0
    assert all(point["difference"] < 1e-5 for point in points)
    assert set(found["milliseconds"]["perceptron"]) == {*(point["name"] for point in points), "matrix product"}


@pytest.mark.needs("tvm")
def test_prediction_times_both_models(tmp_path: Path) -> None:
    quick_run("prediction", ["speedup_over_xgb", "peak_memory_mib"], tmp_path / "result.json")


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_retest_compares_two_ways_of_measuring(tmp_path: Path) -> None:
    ways = quick_run("retest", ["tasks", "programs", "ways"], tmp_path / "result.json")["ways"]
    assert list(ways) == ["sequential", "interleaved"]
    for found in ways.values():
        assert 0 <= found["pairs"] <= 1
        assert found["seconds_per_program"] > 0


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_repeats_compares_their_statistics(tmp_path: Path) -> None:
    judges = quick_run("repeats", ["tasks", "programs", "judges"], tmp_path / "result.json")["judges"]
    assert list(judges) == ["median", "fastest"]
    for by_statistic in judges.values():
        assert list(by_statistic) == ["fastest", "median", "mean"]
        for found in by_statistic.values():
            assert list(found) == ["all", "gru"]
            assert 0 <= found["all"]["regret"] <= found["all"]["regret_largest"]


@pytest.mark.slow
@pytest.mark.needs("tvm")
def test_kills_leave_nothing_behind_and_lose_nothing(tmp_path: Path) -> None:
    commands = quick_run("kills", ["commands"], tmp_path / "result.json")["commands"]
    assert list(commands) == ["extract", "train"]
    for found in commands.values():
        assert (found["kills"], found["problems"]) == (1, [])


# What has to do with tpugraphs needs no TVM; one environment is enough for it.
@pytest.mark.needs("s_tir")
@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("extraction", ("ns_per_node", "speedup_over_per_store_feature")),
        ("kernel_overhead", ("64", "1024")),
        pytest.param("kernels", ("elementwise", "products", "rows"), marks=pytest.mark.slow),
        pytest.param("data_card", ("programs", "tasks", "retest_pairwise_accuracy"), marks=pytest.mark.slow),
        ("tpugraphs_accuracy", ("models", "retest_tau")),
        pytest.param("tpugraphs_speed", ("cases",), marks=pytest.mark.slow),  # a process for each of its figures
    ],
)
def test_a_quick_run_writes_its_metrics(name: str, metrics: tuple[str, ...], tmp_path: Path) -> None:
    quick_run(name, metrics, tmp_path / "result.json")


@pytest.mark.slow
@pytest.mark.needs("tvm")
def test_scale_measures_a_store_of_two_sizes(tmp_path: Path) -> None:
    found = quick_run("scale", ["extraction", "stores", "tenset"], tmp_path / "result.json")
    small, large = found["stores"]
    assert (small["programs"], large["programs"]) == (400, 4000)
    assert large["training"]["tasks"] > small["training"]["tasks"]
    assert all(one[step]["peak_mib"] > 0 for one in (small, large) for step in one if step != "programs")
    assert all(value > 0 for value in found["tenset"].values())
