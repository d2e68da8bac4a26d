"""Compiles a network with the chosen schedules, except for schedules that change its outputs."""

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
from tvm_gnn_cost.schedulers.scheduler import Compiled, Machine, Network, Networks, Task
from tvm_gnn_cost.tuning.choosing import Choice, Chooser
from tvm_gnn_cost.tuning.comparison import fault, limit, relative_difference, tell_nothing

#: Number of wrong schedules to search for before the network gets TVM's default schedules.
_CULPRITS = 2

#: Tolerated difference from the framework, in multiples of what rounding the inputs changes in the outputs.
_AMPLIFIED = 10.0

#: Tolerated difference from the framework, in multiples of the difference of two of its runs.
_NOISE = 2.0

#: Standard deviations of inputs to draw if the outputs for the given inputs verify nothing.
_OTHERS = (1.0, 10.0, 0.1)

#: Upper bound of the tolerance for a network that amplifies rounding errors.
_MOST = 0.05

#: Runs a compiled network on its machine.
Run = Callable[[Compiled, "dict[str, npt.NDArray[Any]]"], "tuple[npt.NDArray[Any], ...]"]


class Compiler:
    """Compiles a network and compares its outputs with its framework's.

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
        scheduler: Networks,
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
        self.dtypes = sorted(
            known | {str(array.dtype) for array in (*network.inputs.values(), *(network.expected or ()))}
        )
        self.allowed = max(limit(self.dtypes), _NOISE * network.noise)

    @cached_property
    def untuned(self) -> Compiled:
        """The network with TVM's default schedules."""
        return self.scheduler.compile(self.network, self.target)

    @cached_property
    def example(self) -> tuple[dict[str, npt.NDArray[Any]], tuple[npt.NDArray[Any], ...]]:
        """Inputs, and the expected outputs: the framework's, or the untuned network's if no framework can run it.

        If the outputs for the network's example inputs verify nothing, the inputs are drawn.
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
                    f"every output of {self.network.name} is constant or NaN for these inputs, which verifies little; "
                    "pass example inputs"
                )
            )
        return inputs, expected

    @property
    def framework(self) -> str:
        """Name of what computed the expected outputs."""
        return framework_of(self.network)

    def compile(self, chooser: Chooser) -> Compiled:
        """The network with the schedules of a chooser.

        Args:
            chooser: Chooses the schedules; wrong schedules are struck off in it.

        Raises:
            WorkError: the outputs are wrong with TVM's default schedules too, or TVM cannot compile the network.
        """
        for _ in range(_CULPRITS):
            choice = chooser.choose()
            tuned, why = self._judged(choice)
            if tuned is not None and not why:
                return tuned
            self._check_untuned()
            self.progress(
                Note(f"with the chosen schedules, {self.network.name} {why}; searching for the wrong schedule")
            )
            task, candidate = self._culprit(choice)
            if candidate is None:
                chooser.strike_recorded(task, f"breaks the network, which {why}")
            else:
                chooser.strike(task, candidate, f"breaks the network, which {why}")
            chooser.keep_default([task])
        choice = chooser.choose()
        tuned, why = self._judged(choice)
        if tuned is not None and not why:
            return tuned
        self.progress(Note(f"{self.network.name} still {why}; using TVM's default schedules"))
        return self.untuned

    def _judged(self, choice: Choice) -> tuple[Compiled | None, str]:
        """The network with these schedules (None if TVM cannot compile it), and its fault."""
        try:
            compiled = self.scheduler.compile(self.network, self.target, self.work_dir, choice.tuned, choice.chosen)
            return compiled, self._fault(compiled)
        except WorkError as error:
            return None, f"fails: {error}"

    def _fault(self, compiled: Compiled) -> str:
        """What is wrong with a compiled network, as a predicate; empty if it is correct."""
        inputs, reference = self.example
        outputs = self.run(compiled, inputs)
        why = fault(outputs, reference, self.allowed, self.framework)
        if why and relative_difference(outputs, reference) <= _MOST:
            # A network may amplify rounding errors of its inputs; then its framework amplifies them too.
            precision = precision_of(self.dtypes)
            nudged_inputs = {
                name: nudged(array, precision) if is_float(array.dtype) else array for name, array in inputs.items()
            }
            amplified = _AMPLIFIED * relative_difference(self.run(compiled, nudged_inputs), outputs)
            if amplified > self.allowed:
                self.allowed = min(_MOST, amplified)
                why = fault(outputs, reference, self.allowed, self.framework)
        return why

    def _check_untuned(self) -> None:
        """Checks that the network is correct with TVM's default schedules.

        Raises:
            WorkError: it is not correct.
        """
        why = self._fault(self.untuned)
        if why:
            raise WorkError(
                f"{self.network.name} {why}, with TVM's default schedules too: the importer or TVM is wrong; "
                "no library is written"
            )

    def _culprit(self, choice: Choice) -> tuple[Task, Any]:
        """A task whose schedule breaks the network, by bisection, and its candidate; None for a recorded candidate."""
        pairs = [*((task, None) for task in choice.tuned), *choice.chosen]
        right, wrong = 0, len(pairs)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            first = pairs[:middle]
            part = Choice(
                [t for t, candidate in first if candidate is None],
                [(t, candidate) for t, candidate in first if candidate is not None],
            )
            if self._judged(part)[1]:
                wrong = middle
            else:
                right = middle
        return pairs[wrong - 1]


def run_once(
    scheduler: Networks, machine: Machine | None, compiled: Compiled, inputs: dict[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[Any], ...]:
    """The outputs of a network that was just compiled.

    Args:
        scheduler: The scheduler that compiled it.
        machine: Runs it; this machine if None.
        compiled: The network.
        inputs: Its inputs by name.

    Raises:
        WorkError: the network cannot be run.
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
    """Inputs with floats drawn with a standard deviation; integers may be indices and stay."""
    rng = np.random.default_rng(0)
    return {
        name: (deviation * rng.standard_normal(array.shape)).astype(array.dtype) if is_float(array.dtype) else array
        for name, array in inputs.items()
    }


def _run_framework(network: Network, inputs: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...] | None:
    """The framework's outputs; None if no framework can run the network on these inputs."""
    if network.program is None:
        return None
    # The network may not accept drawn inputs, and frameworks raise errors of any type.
    try:
        if onnx_graphs.accepts(network.program):
            return onnx_graphs.run(network.program, inputs)
        from tvm_gnn_cost.importing import exported  # loads torch

        return exported.run(network.program, inputs) if exported.accepts(network.program) else None
    except Exception:
        return None


def framework_of(network: Network) -> str:
    """Name of what a network's outputs are compared with."""
    if network.expected is None:
        return "the untuned network"
    return "ONNX" if onnx_graphs.accepts(network.program) else "PyTorch"
