from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.xla_cpu import layout_timing
from tvm_gnn_cost.xla_cpu.layout_timing import Measured, retest_tau, run_process
from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction, Operations
from tvm_gnn_cost.xla_cpu.networks import NETWORKS
from tvm_gnn_cost.xla_cpu.settings import MeasureSettings


def _one_dot(ops: Operations) -> Any:
    return ops.dot(ops.parameter(4, 4), ops.parameter(4, 4))


def _in_process(target: Callable[..., None], folder: Path) -> list[Any]:
    """What the process sends."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(folder, send))
    process.start()
    send.close()
    messages = []
    while not (messages and isinstance(messages[-1], Measured)):
        messages.append(receive.recv())
    process.join()
    assert process.exitcode == 0
    return messages


def _too_many_layouts(folder: Path, send: Connection) -> None:
    NETWORKS["one-dot"] = replace(NETWORKS["perceptron-a"], function=_one_dot)
    run_process("one-dot", MeasureSettings(configs=80), folder / "one-dot.npz", send)


def test_a_network_with_too_few_layouts_is_dropped(tmp_path: Path):
    # Three tensors of rank 2, each of which has two layouts or none.
    dropped = Measured({"dropped": "expected 80 different layouts, but only 27 were drawn; choose fewer configs"})
    assert _in_process(_too_many_layouts, tmp_path) == [dropped]
    assert not list(tmp_path.iterdir())


def _refused_layouts(folder: Path, send: Connection) -> None:
    class Refusing(ConfigurableFunction):
        def lower(self, config: Any) -> Any:
            if config is not None and (config >= 0).any():
                raise RuntimeError("no such layout\nand more")
            return super().lower(config)

    NETWORKS["one-dot"] = replace(NETWORKS["perceptron-a"], function=_one_dot)
    layout_timing.ConfigurableFunction = Refusing  # type: ignore[misc]
    run_process("one-dot", MeasureSettings(configs=3), folder / "one-dot.npz", send)


def test_layouts_that_xla_refuses_are_named(tmp_path: Path):
    *_, last = _in_process(_refused_layouts, tmp_path)
    assert last.entry == {"dropped": "XLA refused 2 of 3 layouts", "refused_by_xla": ["no such layout"] * 2}
    assert not list(tmp_path.iterdir())


def test_retest_tau_compares_the_halves():
    same = np.array([[1.0, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]])
    assert retest_tau(same) == 1
    turned = same.copy()
    turned[:, 2:] = turned[::-1, 2:]
    assert retest_tau(turned) == -1
    # By the fastest run of each half.
    disturbed = same.copy()
    disturbed[0, 0] = disturbed[0, 3] = 9
    assert retest_tau(disturbed) == pytest.approx(1)
