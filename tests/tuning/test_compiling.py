from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from tests.tuning.wrong_schedules import Library, Schedules, chooser_of, tasks_of
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.progress import ignore
from tvm_gnn_cost.schedulers.scheduler import Network
from tvm_gnn_cost.tuning.choosing import Chooser
from tvm_gnn_cost.tuning.compiling import Compiler, run_once

INPUTS = {"x": np.linspace(-1, 1, 50, dtype=np.float32)}


def network(expected: npt.NDArray[Any] | None) -> Network:
    return Network("net", None, {}, INPUTS, None if expected is None else (expected,))


def compiler(schedules: Schedules, folder: Path, expected: npt.NDArray[Any] | None, progress: Any = ignore) -> Compiler:
    def run(compiled: Any, inputs: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        return run_once(schedules, None, compiled, inputs)  # type: ignore[arg-type]

    given = network(expected)
    return Compiler(schedules, given, tasks_of(schedules), "here", folder, run, progress)  # type: ignore[arg-type]


def unseen(schedules: Schedules, folder: Path) -> tuple[Chooser, list[str]]:
    """A chooser whose tasks' programs pass for right, each alone."""
    schedules.blind = True
    return chooser_of(schedules, folder)


@pytest.mark.parametrize("expected", [2 * INPUTS["x"], None], ids=["a framework", "no framework"])
def test_what_is_right_is_compiled_once(tmp_path: Path, expected: npt.NDArray[Any] | None) -> None:
    schedules = Schedules(ranked={"a": ["right"], "b": ["right"]})
    chooser, notes = unseen(schedules, tmp_path)
    found = compiler(schedules, tmp_path, expected).compile(chooser)
    assert isinstance(found, Library)
    assert found.schedules == {"a": "right", "b": "right"}
    assert schedules.compiled == (1 if expected is not None else 2)
    assert notes == []


@pytest.mark.parametrize("place", [0, 3, 6])
def test_the_schedule_that_makes_a_network_wrong_is_found_and_left_out(tmp_path: Path, place: int) -> None:
    ranked = {str(number): ["wrong"] if number == place else ["right"] for number in range(7)}
    schedules = Schedules(ranked=ranked)
    chooser, notes = unseen(schedules, tmp_path)
    found = compiler(schedules, tmp_path, 2 * INPUTS["x"]).compile(chooser)
    assert isinstance(found, Library)
    assert sorted(found.schedules) == [str(number) for number in range(7) if number != place]
    assert [one.task for one in chooser.result.struck] == [f"task {place}"]
    assert "breaks the network, which differs from PyTorch by 2e+02%" in chooser.result.struck[0].reason
    assert len(notes) == 1


def test_a_recorded_schedule_that_tvm_cannot_compile_is_left_out(tmp_path: Path) -> None:
    schedules = Schedules(recorded={"a": [(1.0, "right")], "b": [(1.0, "no code")]})
    chooser, _ = unseen(schedules, tmp_path)
    found = compiler(schedules, tmp_path, 2 * INPUTS["x"]).compile(chooser)
    assert isinstance(found, Library)
    assert found.schedules == {"a": "right"}
    assert "fails: TVM cannot compile net" in chooser.result.struck[0].reason
    assert schedules.recorded == {"a": [(1.0, "right")], "b": [(math.inf, "no code")]}  # for later runs, too


def test_where_many_are_wrong_all_are_left_out(tmp_path: Path) -> None:
    schedules = Schedules(ranked={str(number): ["wrong"] for number in range(5)})
    chooser, _ = unseen(schedules, tmp_path)
    said: list[Any] = []
    found = compiler(schedules, tmp_path, 2 * INPUTS["x"], said.append).compile(chooser)
    assert isinstance(found, Library)
    assert found.schedules == {}
    assert "using TVM's default schedules" in said[-1].text


def test_a_network_that_is_wrong_with_default_schedules_too_has_no_library(tmp_path: Path) -> None:
    schedules = Schedules(ranked={"a": ["right"]}, factor=2.1)
    chooser, _ = unseen(schedules, tmp_path)
    with pytest.raises(WorkError, match=r"net differs from PyTorch by 5% .*, with TVM's default schedules too"):
        compiler(schedules, tmp_path, 2 * INPUTS["x"]).compile(chooser)


def test_another_type_or_shape_is_wrong(tmp_path: Path) -> None:
    for expected in (2.0 * INPUTS["x"].astype(np.float64), 2 * INPUTS["x"][None]):
        schedules = Schedules(ranked={"a": ["right"]})
        chooser, _ = unseen(schedules, tmp_path)
        with pytest.raises(WorkError, match=r"net returns float32\[50\] as output 0, but PyTorch returns float"):
            compiler(schedules, tmp_path, expected).compile(chooser)


def test_a_network_that_amplifies_roundings_may_differ_more(tmp_path: Path) -> None:
    class Chaotic(Library):
        def run(self, inputs: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
            return (np.sin(inputs["x"] * np.float32(1e3)) + np.float32(self.factor),)

    schedules = Schedules(ranked={"a": ["right"]})
    schedules.compile = lambda *_, **__: Chaotic({}, 1e-3)  # type: ignore[method-assign]
    chooser, _ = unseen(schedules, tmp_path)
    made = compiler(schedules, tmp_path, np.sin(INPUTS["x"] * np.float32(1e3)))
    assert isinstance(made.compile(chooser), Chaotic)
    assert 1e-3 < made.allowed <= 0.05


def test_outputs_that_tell_nothing_are_named(tmp_path: Path) -> None:
    said: list[Any] = []
    schedules = Schedules(ranked={"a": ["right"]}, factor=0.0)
    chooser, _ = unseen(schedules, tmp_path)
    compiler(schedules, tmp_path, 0 * INPUTS["x"], said.append).compile(chooser)
    assert "every output of net is constant or NaN" in said[0].text


def test_where_outputs_tell_nothing_others_are_drawn(tmp_path: Path) -> None:
    # A ReLU behind a threshold that the given inputs do not reach.
    module = nn.Threshold(5.0, 0.0)
    program = torch.export.export(module, (torch.from_numpy(INPUTS["x"]),))

    class Library50(Library):
        def run(self, inputs: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
            return (np.where(inputs["x"] > 5, inputs["x"] * np.float32(self.factor), np.float32(0)),)

    for factor in (1.0, 1.1):
        said: list[Any] = []
        schedules = Schedules(ranked={"a": ["right"]})
        schedules.compile = lambda *_, factor=factor, **__: Library50({}, factor)  # type: ignore[method-assign]
        made = compiler(schedules, tmp_path, 0 * INPUTS["x"], said.append)
        made.network = replace(made.network, program=program)
        chooser, _ = unseen(schedules, tmp_path)
        if factor == 1:
            assert isinstance(made.compile(chooser), Library50)
        else:
            with pytest.raises(WorkError, match="net differs from PyTorch by 10%"):
                made.compile(chooser)
        assert said == []


def test_a_network_may_differ_as_its_framework_does_from_itself(tmp_path: Path) -> None:
    schedules = Schedules(ranked={"a": ["right"]}, factor=2.1)
    made = compiler(schedules, tmp_path, 2 * INPUTS["x"])
    noisy = Compiler(schedules, replace(made.network, noise=0.03), [], "here", tmp_path, made.run, ignore)  # type: ignore[arg-type]
    chooser, _ = unseen(schedules, tmp_path)
    assert isinstance(noisy.compile(chooser), Library)


def test_what_cannot_be_run_is_named() -> None:
    class Broken(Library):
        def run(self, _: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
            raise TypeError("no tensor")

    with pytest.raises(WorkError, match=r"the compiled network cannot be run: .*no tensor"):
        run_once(Schedules(), None, Broken({}, 1.0), INPUTS)  # type: ignore[arg-type]
