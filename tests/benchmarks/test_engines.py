"""The tables of the engines, and a quick run of a network; the figures of that run mean nothing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.test_quick import quick_run
from tvm_gnn_cost.errors import InputError

onnx = pytest.importorskip("onnx")
profiles = pytest.importorskip("engine_profiles")
tables = pytest.importorskip("engines_tables")
networks = pytest.importorskip("engines_networks")

# The tables need no TVM; one environment is enough for them.
pytestmark = pytest.mark.needs("s_tir")


ROOT = Path(__file__).parents[2]


def times(lower: float) -> dict[str, Any]:
    return {"difference": 1e-6, "reason": "", "median": 99.0, "quartiles": [lower, lower + 0.5], "turns": []}


MACHINE = {"processor": "A processor", "signature": "family 1", "cores": 2, "system": "Linux"}
RESULT = {
    "machine": MACHINE,
    "versions": {"openvino": "2026.4.1"},
    "settings": {"minutes": 5.0, "turns": 20, "threads": 2, "seed": 0},
    "metrics": {
        "networks": {
            "ahead": {
                "family": "convolutional",
                "machine": MACHINE,
                "checkpoint": "1a2b3c4d",
                "other_load": 0.25,
                "points": {"TVM's MetaSchedule, 5 minutes": {"trials": 32, "seconds": 330.0}},
                "engines": {
                    tables.UNMEASURED: times(8.0),
                    "tune --minutes 5": times(4.0),
                    "ONNX Runtime": times(16.0),
                    "OpenVINO": times(8.0),
                    "MNN": {"difference": 0.1, "reason": "an output differs"},
                },
            },
            "behind": {
                "family": "recurrent",
                "machine": {"processor": "Another", "cores": 2, "system": "Linux"},
                "engines": {
                    tables.UNMEASURED: times(8.0),
                    "tune --minutes 5": times(8.0),
                    "ONNX Runtime": times(4.0),
                },
                "profiles": {"ONNX Runtime": {"Conv": 3.0, "Relu": 0.5}},
            },
        }
    },
}
NETWORKS: dict[str, Any] = RESULT["metrics"]["networks"]  # type: ignore[index]


def test_a_ratio_is_the_best_engines_time_by_ours() -> None:
    assert tables.best_engine(NETWORKS["ahead"]) == ("OpenVINO", 8.0)
    assert tables.ratio(NETWORKS["ahead"], "tune --minutes 5") == 2.0
    assert tables.ratio(NETWORKS["ahead"], tables.UNMEASURED, "ONNX Runtime") == 2.0
    assert tables.ratio(NETWORKS["ahead"], tables.UNMEASURED, "MNN") is None
    assert tables.ratio(NETWORKS["behind"], "tune --minutes 15") is None


def test_the_rows_name_the_best_engine_and_what_failed() -> None:
    assert tables.columns(NETWORKS)[:4] == ("network", "`tune --trials 0`", "`tune --minutes 5`", "ONNX Runtime")
    ahead, behind = tables.rows(NETWORKS, 5.0)
    assert ahead == (
        "ahead",
        "8.00 to 8.50",
        "**4.00 to 4.50**",
        "16.0 to 16.5",
        "8.00 to 8.50",
        "fails",
        "OpenVINO",
        "1.00",
        "2.00",
    )
    assert behind == (
        "behind",
        "8.00 to 8.50",
        "8.00 to 8.50",
        "**4.00 to 4.50**",
        "",
        "",
        "ONNX Runtime",
        "0.50",
        "0.50",
    )
    assert tables.failures(NETWORKS) == [("ahead", "MNN", "an output differs")]


def test_families_have_geometric_means() -> None:
    assert tables.family_rows(NETWORKS, 5.0) == [
        ("convolutional", "1", "2.00", "1.00", "4.00", "2.00"),
        ("recurrent", "1", "0.50", "0.50", "0.50", "0.50"),
        ("all", "2", "1.00", "0.71", "1.41", "1.00"),
    ]


def test_the_verdict_names_the_networks_below_the_aim() -> None:
    assert tables.verdict(NETWORKS, "tune --minutes 5", "", (1.15, 0.9)) == (
        "best engine / `tune --minutes 5`: geometric mean 1.00 over 2 networks (aim: 1.15), 1 below 0.9: behind (0.50)."
    )
    missing = NETWORKS | {"none": {"family": "recurrent", "engines": {}}}
    assert tables.verdict(missing, "tune --minutes 5", "", (1.0, 0.4)).endswith("0 below 0.4; 1 without a time.")


def test_the_choice_without_a_measurement_is_compared_with_the_search() -> None:
    assert tables.without_measurement(NETWORKS, 5.0) == (
        "`tune --trials 0` / `tune --minutes 5`: geometric mean 1.41 over 2 networks (aim: 1.1), largest 2.00 (aim: "
        "1.3): ahead."
    )
    assert tables.without_measurement(NETWORKS, 15.0).startswith("No network has both")


def test_what_is_below_an_aim_has_the_profile_of_the_engines() -> None:
    assert tables.behind(NETWORKS, 5.0) == [("behind", "0.50, 0.50", "ONNX Runtime", "Conv 3.0, Relu 0.50")]


@pytest.mark.parametrize("engine", ["onnx_runtime", "openvino"])
def test_the_profile_of_an_engine_has_its_operators(engine: str, tmp_path: Path) -> None:
    pytest.importorskip(engine.replace("_", ""))
    graph = onnx.parser.parse_graph("g (float[64, 64] x, float[64, 64] y) => (float[64, 64] z) { z = MatMul(x, y) }")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)]), tmp_path / "net.onnx")
    found = getattr(profiles, engine)(tmp_path / "net.onnx", [np.ones((64, 64), np.float32)] * 2, 1)
    assert "MatMul" in found
    assert all(ms > 0 for ms in found.values())


def test_the_page_has_every_network_and_reason() -> None:
    page = tables.page(RESULT)
    assert "own `tune_relax` of the network" in page
    assert "of 1 networks." in page
    assert "\nup to 5.5 minutes." in page
    assert "; other processes used at most 0.25 cores meanwhile.\n" in page
    assert "- A processor (family 1), 2 cores, Linux, checkpoint 1a2b3c4d: ahead\n" in page
    assert "- Another, 2 cores, Linux, an earlier checkpoint: behind\n" in page
    for text in ("| ahead |", "| behind |", "| ahead | MNN | an output differs |", "Versions: openvino 2026.4.1."):
        assert text in page
    assert max(map(len, (line for line in page.splitlines() if not line.startswith(("|", "-"))))) <= 120
    assert "ahead" in tables.picture(NETWORKS, 5.0)


def test_the_readme_and_the_page_are_those_of_the_result(tmp_path: Path) -> None:
    engines = pytest.importorskip("engines")
    (tmp_path / "README.md").write_text(f"before\n{engines._BEGIN}old\n{engines._END}\nafter\n")
    engines.write_pages(RESULT, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n")
    assert readme.endswith("\nafter\n")
    assert "| ahead | OpenVINO | 8.00 | 4.00 | 2.00 |" in readme
    assert "| behind | ONNX Runtime | 4.00 | 8.00 | 0.50 |" in readme
    assert "old" not in readme
    assert (tmp_path / "docs/results/engines.md").read_text() == tables.page(RESULT)
    assert "currentColor" not in (tmp_path / "docs/images/engines.svg").read_text()
    committed = ROOT / "benchmarks/results/engines.json"
    if committed.exists():
        result = json.loads(committed.read_text())
        assert (ROOT / "docs/results/engines.md").read_text() == tables.page(result)
        assert tables.summary(result) in (ROOT / "README.md").read_text()


def test_a_run_of_some_networks_keeps_the_others_of_the_same_settings(tmp_path: Path) -> None:
    common = pytest.importorskip("common")
    path, settings = tmp_path / "result.json", RESULT["settings"]
    assert common.earlier_metrics(path, settings) == {}
    path.write_text(json.dumps(RESULT))
    assert list(common.earlier_metrics(path, settings)["networks"]) == ["ahead", "behind"]
    assert common.earlier_metrics(path, settings | {"minutes": 1.0}) == {}


@pytest.mark.parametrize("text", ['{"settings": {}, "metr', "[]", '{"settings": {}}'])
def test_an_earlier_result_that_is_none_is_named_and_not_replaced(tmp_path: Path, text: str) -> None:
    common = pytest.importorskip("common")
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=f"{path} is not the JSON of a result"):
        common.earlier_metrics(path, RESULT["settings"])


def test_every_family_has_five_networks_of_different_names() -> None:
    assert len(networks.FAMILIES) == 6
    assert all(len(one) >= 5 for one in networks.FAMILIES.values())
    by_name = {one.name for family in (*networks.FAMILIES.values(), networks.BATCHES) for one in family}
    assert set(networks.NETWORKS) == by_name
    assert len(by_name) - len(networks.BATCHES) >= 25


@pytest.mark.slow
def test_a_network_is_tuned_and_compared(tmp_path: Path) -> None:
    options = ("--engines", "PyTorch", "ONNX Runtime", "OpenVINO", "MNN")
    found = quick_run("engines", ["networks"], tmp_path / "result.json", *options)["networks"]["gru"]
    engines = found["engines"]
    ours = ["tune --trials 0", "tune --minutes 0.1"]
    assert {*ours, "PyTorch", "ONNX Runtime", "OpenVINO", "MNN"} == set(engines)
    for name in (*ours, "PyTorch", "ONNX Runtime", "OpenVINO", "MNN"):
        assert (engines[name]["reason"], len(engines[name]["turns"])) == ("", 2), name
        assert engines[name]["difference"] < 1e-5
    assert found["points"][ours[0]]["trials"] == 0


def _perceptron() -> Any:
    from tvm_gnn_cost.schedulers import scheduler
    from tvm_gnn_cost.schedulers.meta_schedule.networks import import_with_tvm

    return import_with_tvm(scheduler().network("perceptron").program, "perceptron", scheduler().target())


def _search(folder: Path) -> None:
    importlib.import_module("tvm_search").search_network(_perceptron(), folder, seed=0, seconds=0.0)


@pytest.mark.slow
def test_tvms_own_search_ends_when_every_task_has_a_batch(tmp_path: Path) -> None:
    assert pytest.importorskip("engines").in_process(_search, tmp_path / "tvm") == 0
    found = pytest.importorskip("tvm_search").compile_network(_perceptron(), tmp_path / "tvm", tmp_path / "tvm.so")
    lines = (tmp_path / "tvm" / "database_workload.json").read_text().splitlines()
    assert found >= len(lines) > 1
    assert (tmp_path / "tvm.so").exists()
