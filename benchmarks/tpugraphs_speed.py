"""Time and memory of TGraph when scoring and training on layouts of graphs of 3,000 and of 40,000 nodes.

The graphs are transformers as JAX passes them to XLA, with and without pruning. TGraph, which computes equal nodes
once, is compared with the plain computation of the same scores; each runs in a separate process. The cost of packed
configurations is measured when they are read.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from common import call_seconds, console, parser, write_result
from tpugraphs_plain import PlainTGraph
from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.tpugraphs.format.npz import read_graph, write_npz
from tvm_gnn_cost.tpugraphs.models.tgraph import TGraph, TGraphConfig
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_files
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph, read_prepared
from tvm_gnn_cost.tpugraphs.ranking.losses import hinge
from tvm_gnn_cost.tpugraphs.ranking.ranker import GraphInputs, score
from tvm_gnn_cost.tpugraphs.settings import RankerSettings
from tvm_gnn_cost.training.scale import Scale

CONFIGS = 128
#: A call that takes longer is made only once.
LONG_S = 10.0
#: Floats of one layer's output in the plain computation, which compares as many configurations at once as this allows.
ACTIVATIONS = 4e8


@dataclass(frozen=True)
class Seconds:
    """Statistics of the seconds that some calls took."""

    median: float
    least: float
    most: float
    calls: int

    def ms(self) -> dict[str, float]:
        """The milliseconds, for the JSON."""
        return {"ms": 1e3 * self.median, "least": 1e3 * self.least, "most": 1e3 * self.most, "calls": self.calls}


def write_graph(path: Path, layers: int) -> None:
    """Writes a transformer with random layouts and runtimes into a file like the published ones."""
    from tvm_gnn_cost.tpugraphs.format.encoding import encode_configured
    from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction, random_configs
    from tvm_gnn_cost.xla_cpu.networks import encoder

    rng = np.random.default_rng(0)
    function = ConfigurableFunction(partial(encoder, layers=layers, width=64, heads=2, length=32))
    configs = random_configs(function.ranks, CONFIGS, rng)
    runtime = rng.integers(10**6, 10**7, CONFIGS)
    write_npz(path, encode_configured(function.module, function.config_nodes, configs, runtime))


def seconds(work: Callable[[], object], repeats: int) -> Seconds:
    """Times some calls after a warm-up; a long warm-up is itself the measurement."""
    taken = call_seconds(work, 1)
    if taken[0] < LONG_S:
        taken = call_seconds(work, repeats)
    return Seconds(statistics.median(taken), min(taken), max(taken), len(taken))


def measure_scoring(
    net: type[TGraph], folder: Path, name: str, channels: int, repeats: int, share_only: bool, results: Any
) -> None:
    """Scores configurations of a prepared graph; the target of a separate process.

    For a large graph, the plain computation can compare only a share of the configurations at once.
    """
    torch.set_num_threads(1)
    inputs, size = _inputs(folder, name, channels)
    torch.manual_seed(0)
    model = net(TGraphConfig(channels=channels)).eval()
    count = -(-CONFIGS // math.ceil(CONFIGS * size / ACTIVATIONS)) if share_only else CONFIGS
    scores: list[list[float]] = []
    before = _reset_peak()
    taken = seconds(
        lambda: scores.append(score(model, inputs, np.arange(count), count, permutations=1).tolist()), repeats
    )
    results.put(taken.ms() | {"configs": count, "mib": _peak() - before, "scores": scores[0]})


def measure_training(net: type[TGraph], folder: Path, name: str, channels: int, repeats: int, results: Any) -> None:
    """Trains on a prepared graph; the target of a separate process."""
    torch.set_num_threads(1)
    inputs, size = _inputs(folder, name, channels)
    model = net(TGraphConfig(channels=channels))
    # A backward pass of the plain computation keeps about five times the memory of a forward pass.
    count = max(2, min(RankerSettings().configs_per_step, int(ACTIVATIONS / 5 / size)))
    optimizer = torch.optim.AdamW(model.parameters())
    assert inputs.graph.runtime is not None, "write_graph wrote them"
    runtime = torch.from_numpy(inputs.graph.runtime[:count].astype(np.float32))
    hidden = np.random.default_rng(0).random(len(inputs.opcode)) < TGraphConfig().unknown_opcodes

    def step() -> None:
        optimizer.zero_grad()
        loss = hinge(model(inputs.with_configs(np.arange(count), hidden)), runtime)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    before = _reset_peak()
    taken = seconds(step, repeats)
    results.put(taken.ms() | {"configs": count, "mib": _peak() - before})


def _inputs(folder: Path, name: str, channels: int) -> tuple[GraphInputs, int]:
    """A prepared graph, and the floats of one layer's output for one of its configurations."""
    graph = read_prepared(folder, name)
    return GraphInputs(graph, Scale.fit([graph.numbers])), len(graph.opcode) * channels


def reading(path: Path, graph: PreparedGraph, folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds to read all configurations in a random order from the page cache, and their size in bytes."""
    rows = np.random.default_rng(0).permutation(CONFIGS)
    layouts = np.concatenate(list(read_graph(path).configs()))
    forms: dict[str, tuple[Callable[[], object], int]] = {"packed": (lambda: graph.configs(rows), graph.packed.nbytes)}
    for form, dtype in (("int8", np.int8), ("float32, as published", np.float32)):
        file = folder / f"{form[:4]}.npy"
        np.save(file, layouts.astype(dtype))
        mapped = np.load(file, mmap_mode="r")
        forms[form] = (lambda mapped=mapped: np.asarray(mapped[rows]).astype(np.int8), mapped.nbytes)  # type: ignore[misc]
    return {form: seconds(read, repeats).ms() | {"bytes": size} for form, (read, size) in forms.items()}


def _reset_peak() -> float:
    """Restarts the count of :func:`_peak` and returns the MiB that the process holds now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """Peak MiB of the process since :func:`_reset_peak`."""
    (line,) = (row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _in_own_process(target: Callable[..., None], *arguments: object) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=target, args=(*arguments, results))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"{target.__name__} of {arguments} ended with exit code {process.exitcode}")
    answer: dict[str, Any] = results.get()
    return answer


def _compare(*case: object) -> dict[str, dict[str, Any]]:
    """Time and memory of the plain computation and of TGraph for one graph, and how well their scores agree."""
    nets = {"plain": PlainTGraph, "shared": TGraph}
    scoring: dict[str, Any] = {how: _in_own_process(measure_scoring, net, *case, True) for how, net in nets.items()}
    training: dict[str, Any] = {how: _in_own_process(measure_training, net, *case) for how, net in nets.items()}
    for both in (scoring, training):
        both["ratios"] = {unit: both["plain"][unit] / max(1.0, both["shared"][unit]) for unit in ("ms", "mib")}
    plain, shared = (np.array(scoring[how].pop("scores")) for how in nets)
    scoring |= {"tau": kendall_tau(plain, shared), "difference": float(abs(plain - shared).max() / plain.std())}
    comparison = {"scoring": scoring, "training": training}
    if scoring["shared"]["configs"] < CONFIGS:
        every = _in_own_process(measure_scoring, TGraph, *case, False)
        comparison["scoring all at once"] = {"shared": {key: value for key, value in every.items() if key != "scores"}}
    return comparison


def main() -> None:
    """Prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--channels", type=int, default=TGraphConfig().channels)
    arguments = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    # A layer has 100 nodes.
    layers = {"small": 1} if arguments.quick else {"3,000 nodes": 30, "40,000 nodes": 400}
    channels, repeats = (16, 1) if arguments.quick else (arguments.channels, arguments.repeats)
    cases: dict[str, Any] = {}
    table = Table(title=f"TGraph, {channels} channels, one thread", title_justify="left")
    for heading in ("graph", "nodes", "what", "layouts", "plain ms", "ms", "ratio", "plain MiB", "MiB", "ratio", "tau"):
        table.add_column(heading, justify="left" if heading in ("graph", "what") else "right")
    forms = Table(title=f"reading {CONFIGS} configurations", title_justify="left")
    for heading in ("graph", "form", "ms", "MiB"):
        forms.add_column(heading, justify="right" if heading in ("ms", "MiB") else "left")
    with tempfile.TemporaryDirectory() as temporary:
        for title, count in layers.items():
            path = Path(temporary) / f"{count}.npz"
            write_graph(path, count)
            for how, prunes in (("pruned", True), ("whole", False)):
                folder = Path(temporary) / how
                list(prepare_files([path], folder, [], prunes=prunes))
                title_how = f"{title}, {how}"
                cases[title_how] = case = _compare(folder, path.stem, channels, repeats)
                nodes = len(read_prepared(folder, path.stem).opcode)
                _add_rows(table, title_how, nodes, case)
            read = reading(path, read_prepared(Path(temporary) / "pruned", path.stem), Path(temporary), repeats)
            cases[f"{title}, reading"] = read
            for form, size in read.items():
                forms.add_row(title, form, f"{size['ms']:.2f}", f"{size['bytes'] / 2**20:.1f}")
    console.print(table)
    console.print(forms)
    settings = {"quick": arguments.quick, "channels": channels, "repeats": repeats, "configs": CONFIGS}
    write_result(arguments.json, "tpugraphs_speed", settings, {"cases": cases})


def _add_rows(table: Table, title: str, nodes: int, case: dict[str, dict[str, Any]]) -> None:
    """Adds the rows of one graph to the table, and prints them."""
    for what, measured in case.items():
        cells = [f"{nodes:,}", what, str(measured["shared"]["configs"])]
        for unit in ("ms", "mib"):
            plain, ratio = (
                (f"{measured['plain'][unit]:,.0f}", f"{measured['ratios'][unit]:.1f}")
                if "plain" in measured
                else ("", "")
            )
            cells += [plain, f"{measured['shared'][unit]:,.0f}", ratio]
        table.add_row(title, *cells, f"{measured['tau']:.4f}" if "tau" in measured else "")
        console.print(f"{title}, {what}: {measured['shared']['ms']:,.0f} ms", highlight=False)


if __name__ == "__main__":
    main()
