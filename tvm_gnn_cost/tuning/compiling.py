"""Compiles a network with the schedules that were chosen, and without those that make it compute something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.importing import onnx_graphs
from tvm_gnn_cost.measuring.arguments import is_float, nudged
from tvm_gnn_cost.measuring.verification import precision_of
from tvm_gnn_cost.progress import Note, Progress
from tvm_gnn_cost.schedulers.scheduler import Compiled, Machine, Network, Scheduler, Task
from tvm_gnn_cost.tuning.choosing import Choice, Chooser
from tvm_gnn_cost.tuning.comparison import fault, limit, relative_difference, tell_nothing

#: Schedules to look for, one after the other, before all are given up.
_CULPRITS = 2

#: So many times what a rounding of its inputs changes in its outputs, a network may differ from its framework.
_AMPLIFIED = 10.0

#: Likewise, so many times what two runs of the framework differ.
_NOISE = 2.0

#: Standard deviations of the inputs that are drawn where the given ones tell nothing.
_OTHERS = (1.0, 10.0, 0.1)

#: But not by more than this.
_MOST = 0.05

#: Runs a compiled network on its machine.
Run = Callable[[Compiled, "dict[str, npt.NDArray[Any]]"], "tuple[npt.NDArray[Any], ...]"]


class Compiler:
    """Compiles a network, and tells whether what it compiled computes what the framework does.

    Args:
        scheduler: The scheduler.
        network: The network.
        tasks: Its tasks.
        target: The target of the machine that will run it.
        work_dir: The folder of the records.
        run: Runs a compiled network on its inputs.
        progress: Receives notes.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        tasks: list[Task],
        target: Any,
        work_dir: Path,
        run: Run,
        progress: Progress,
    ) -> None:
        self.scheduler, self.network, self.target = scheduler, network, target
        self.work_dir, self.run, self.progress = work_dir, run, progress
        known = {dtype for task in tasks for dtype in scheduler.dtypes(task)}
        self.dtypes = sorted(known | {str(one.dtype) for one in (*network.inputs.values(), *(network.expected or ()))})
        self.allowed = max(limit(self.dtypes), _NOISE * network.noise)

    @cached_property
    def untuned(self) -> Compiled:
        """The network with TVM's default schedules."""
        return self.scheduler.compile(self.network, self.target)

    @cached_property
    def example(self) -> tuple[dict[str, npt.NDArray[Any]], tuple[npt.NDArray[Any], ...]]:
        """Inputs, and the framework's outputs for them, or the untuned network's where there is none.

        They are the network's own, or others if its outputs for those tell nothing.
        """
        inputs = dict(self.network.inputs)
        expected = self.network.expected
        if expected is None:
            expected = self.run(self.untuned, inputs)
        elif tell_nothing(expected):
            for deviation in _OTHERS:
                others = _drawn(inputs, deviation)
                outputs = _run_framework(self.network, others)
                if outputs is not None and not tell_nothing(outputs):
                    return others, outputs
        if tell_nothing(expected):
            self.progress(
                Note(
                    f"all outputs of {self.network.name} are the same or no numbers for these inputs, which verifies "
                    "little; give examples of its inputs"
                )
            )
        return inputs, expected

    @property
    def framework(self) -> str:
        """Whose outputs these are."""
        return framework_of(self.network)

    def compile(self, chooser: Chooser) -> Compiled:
        """The network with schedules that the chooser chose.

        Args:
            chooser: Chooses, and strikes off what turns out to be wrong here.

        Raises:
            WorkError: the network is wrong with TVM's default schedules too, or TVM cannot compile it.
        """
        for _ in range(_CULPRITS):
            choice = chooser.choose()
            tuned, why = self._judged(choice)
            if tuned is not None and not why:
                return tuned
            self._check_untuned()
            self.progress(
                Note(f"with the chosen schedules, {self.network.name} {why}; looking for the one that is wrong")
            )
            task, candidate = self._culprit(choice)
            recorded = candidate is None
            if recorded:
                (candidate,) = self.scheduler.best([task], self.work_dir)
            chooser.strike(task, candidate, f"makes the network wrong, which {why}", recorded=recorded)
            chooser.keep_default([task])
        choice = chooser.choose()
        tuned, why = self._judged(choice)
        if tuned is not None and not why:
            return tuned
        self.progress(Note(f"{self.network.name} still {why}; it gets TVM's default schedules"))
        return self.untuned

    def _judged(self, choice: Choice) -> tuple[Compiled | None, str]:
        """The network with these schedules, or None if TVM cannot compile it, and what is wrong with it."""
        try:
            compiled = self.scheduler.compile(self.network, self.target, self.work_dir, choice.tuned, choice.chosen)
            return compiled, self._fault(compiled)
        except WorkError as error:
            return None, f"fails: {error}"

    def _fault(self, compiled: Compiled) -> str:
        """What is wrong with a compiled network; empty if nothing is."""
        inputs, reference = self.example
        outputs = self.run(compiled, inputs)
        why = fault(outputs, reference, self.allowed, self.framework)
        if why and relative_difference(outputs, reference) <= _MOST:
            # A network may change much with a rounding of its inputs, and then its framework does too.
            precision = precision_of(self.dtypes)
            other = {name: nudged(one, precision) if is_float(one.dtype) else one for name, one in inputs.items()}
            amplified = _AMPLIFIED * relative_difference(self.run(compiled, other), outputs)
            if amplified > self.allowed:
                self.allowed = min(_MOST, amplified)
                why = fault(outputs, reference, self.allowed, self.framework)
        return why

    def _check_untuned(self) -> None:
        """Checks that the network is right with TVM's default schedules.

        Raises:
            WorkError: it is not.
        """
        why = self._fault(self.untuned)
        if why:
            raise WorkError(
                f"{self.network.name} {why}, with TVM's default schedules too: it was not imported as it is, or TVM "
                "compiles it wrongly; there is no library"
            )

    def _culprit(self, choice: Choice) -> tuple[Task, Any]:
        """A task whose schedule makes the network wrong, and its candidate, None for a recorded one; by bisection."""
        pairs = [*((task, None) for task in choice.tuned), *choice.chosen]
        right, wrong = 0, len(pairs)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            some = pairs[:middle]
            part = Choice([t for t, one in some if one is None], [(t, one) for t, one in some if one is not None])
            if self._judged(part)[1]:
                wrong = middle
            else:
                right = middle
        return pairs[wrong - 1]


def run_once(
    scheduler: Scheduler, machine: Machine | None, compiled: Compiled, inputs: dict[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[Any], ...]:
    """The outputs of a network that was just compiled.

    Args:
        scheduler: The one that compiled it.
        machine: Runs it; this machine if None.
        compiled: The network.
        inputs: Its inputs by name.

    Raises:
        WorkError: it cannot be run.
    """
    # TVM raises errors of any type.
    try:
        if machine is None:
            return compiled.run(inputs)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "network.tar"
            compiled.export(path)
            return scheduler.load(path, machine).run(inputs)
    except WorkError:
        raise
    except Exception as error:
        raise WorkError(f"the compiled network cannot be run: {last_line(error)}") from error


def _drawn(inputs: dict[str, npt.NDArray[Any]], deviation: float) -> dict[str, npt.NDArray[Any]]:
    """Other inputs: floats with a standard deviation; integers may be indices, and stay."""
    rng = np.random.default_rng(0)
    return {
        name: (deviation * rng.standard_normal(one.shape)).astype(one.dtype) if is_float(one.dtype) else one
        for name, one in inputs.items()
    }


def _run_framework(network: Network, inputs: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...] | None:
    """What the framework gives; None if none can run the network on these inputs."""
    if network.program is None:
        return None
    # Inputs that were drawn may be none for this network, and frameworks raise errors of any type.
    try:
        if onnx_graphs.accepts(network.program):
            return onnx_graphs.run(network.program, inputs)
        from tvm_gnn_cost.importing import exported  # loads torch

        return exported.run(network.program, inputs) if exported.accepts(network.program) else None
    except Exception:
        return None


def framework_of(network: Network) -> str:
    """Whose outputs a network's are compared with."""
    if network.expected is None:
        return "the untuned network"
    return "ONNX" if onnx_graphs.accepts(network.program) else "PyTorch"
