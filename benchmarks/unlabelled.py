"""Samples programs that nobody measures, which costs no run: candidates of random layers, as graphs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from common import console
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.programs import Measurement, TaskInfo, measured_programs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.networks.layers import layer_names
from tvm_gnn_cost.schedulers import scheduler

#: Layers to sample from, and how many of them fill a shard of the store.
_LAYERS = 6000
_LAYERS_AT_ONCE = 32


def sample_unlabelled(store: Path, programs_a_task: int, minutes: float) -> None:
    """Extends a store of sampled programs of this machine's target until ``minutes`` are over; they count as failed.

    Args:
        store: The store; the layers that it has are not sampled again.
        programs_a_task: Number of random candidates of each task.
        minutes: Most minutes of this call.
    """
    # The layers that `collect layers` measures have the lowest numbers: here they come last.
    names = layer_names(_LAYERS)[::-1]
    done = {layer for task in GraphStore(store).tasks() for layer in task.weights}
    end = time.monotonic() + 60 * minutes
    with Progress(console=console, transient=True) as progress:
        for start in progress.track(range(0, len(names), _LAYERS_AT_ONCE), description="sampling"):
            layers = names[start : start + _LAYERS_AT_ONCE]
            if done.isdisjoint(layers):
                _append(store, layers, programs_a_task)
            if time.monotonic() > end:
                break


def _append(store: Path, layers: Sequence[str], count: int) -> None:
    chosen = scheduler()
    target = chosen.target()
    graphs, measurements = [], []
    for layer in layers:
        for task in chosen.tasks_of_workload(layer, target):
            candidates = chosen.sample(task, target, count, seed=0)
            graphs.append(chosen.graphs(task, target, candidates))
            info = TaskInfo(task.key, task.name, str(target), {layer: task.weight}, chosen.name)
            measurements += [Measurement(info, (), "not measured", "random")] * len(candidates)
    GraphStore(store).append(measured_programs(ProgramGraphs.concatenate(graphs), measurements, None))
