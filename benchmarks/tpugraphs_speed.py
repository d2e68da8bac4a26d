"""How much time and memory TGraph takes to score 128 layouts of graphs of 3,000 and of 40,000 nodes.

The graphs are transformers as JAX passes them to XLA. Each case runs in a process of its own, with and without pruning;
the time and the bytes that packing costs and saves are measured where configurations are read.
"""

from __future__ import annotations

import gc
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
from tvm_gnn_cost.tpugraphs.losses import hinge
from tvm_gnn_cost.tpugraphs.models.tgraph import TGraph, TGraphConfig
from tvm_gnn_cost.tpugraphs.npz import read_graph, write_npz
from tvm_gnn_cost.tpugraphs.preparation import prepare_graph
from tvm_gnn_cost.tpugraphs.prepared_graph import PreparedGraph, read_prepared
from tvm_gnn_cost.tpugraphs.ranker import GraphInputs, score
from tvm_gnn_cost.tpugraphs.settings import RankerSettings
from tvm_gnn_cost.training.scale import Scale

CONFIGS = 128
#: A call that takes longer is made only once.
LONG_S = 60.0
#: Floats of one layer's output; configurations beyond this are scored in several batches.
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
    from tvm_gnn_cost.tpugraphs.encoding import encode_configured
    from tvm_gnn_cost.tpugraphs.layouts import ConfigurableFunction, random_configs
    from tvm_gnn_cost.tpugraphs.networks import encoder

    rng = np.random.default_rng(0)
    function = ConfigurableFunction(partial(encoder, layers=layers, width=64, heads=2, length=32))
    configs = random_configs(function.ranks, CONFIGS, rng)
    runtime = rng.integers(10**6, 10**7, CONFIGS)
    write_npz(path, encode_configured(function.module, function.config_nodes, configs, runtime))


def seconds(work: Callable[[], object], repeats: int) -> Seconds:
    """Times some calls after a warm-up; a warm-up of more than a minute is the measurement itself."""
    taken = call_seconds(work, 1)
    if taken[0] < LONG_S:
        taken = call_seconds(work, repeats)
    return Seconds(statistics.median(taken), min(taken), max(taken), len(taken))


def measure_case(folder: Path, name: str, channels: int, repeats: int, results: Any) -> None:
    """Scores all configurations of a prepared graph, then trains on it; the target of a process of its own."""
    torch.set_num_threads(1)
    graph = read_prepared(folder, name)
    inputs = GraphInputs(graph, Scale.fit([graph.numbers]))
    net = TGraph(TGraphConfig(channels=channels)).eval()
    size = len(graph.opcode) * channels
    at_once = max(2, min(CONFIGS, int(ACTIVATIONS / size)))
    before = _reset_peak()
    taken = seconds(lambda: score(net, inputs, np.arange(CONFIGS), at_once, permutations=1), repeats)
    scoring = taken.ms() | {"at_once": at_once, "mib": _peak() - before}
    # A backward pass keeps about five times what a forward pass needs.
    at_once = max(2, min(RankerSettings().configs_per_step, int(ACTIVATIONS / 5 / size)))
    optimizer = torch.optim.AdamW(net.train().parameters())
    assert graph.runtime is not None, "write_graph wrote them"
    runtime = torch.from_numpy(graph.runtime[:at_once].astype(np.float32))

    def step() -> None:
        optimizer.zero_grad()
        hinge(net(inputs.with_configs(np.arange(at_once))), runtime).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    before = _reset_peak()
    taken = seconds(step, repeats)
    training = taken.ms() | {"steps_per_second": 1 / taken.median, "at_once": at_once, "mib": _peak() - before}
    results.put({"nodes": len(graph.opcode), "scoring": scoring, "training": training})


def reading(path: Path, graph: PreparedGraph, folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds to read all configurations in a random order from the page cache, and their size in bytes."""
    rows = np.random.default_rng(0).permutation(CONFIGS)
    layouts = read_graph(path).configs.read(np.arange(CONFIGS))
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
    """The most MiB that the process held since :func:`_reset_peak`."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _in_own_process(target: Callable[..., None], *arguments: object) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=target, args=(*arguments, results))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"{target.__name__} of {arguments[1]} ended with exit code {process.exitcode}")
    found: dict[str, Any] = results.get()
    return found


def main() -> None:
    """Prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--channels", type=int, default=TGraphConfig().channels)
    arguments = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    # A layer has 100 nodes.
    layers = {"small": 1} if arguments.quick else {"3,000 nodes": 30, "40,000 nodes": 400}
    channels, repeats = (16, 1) if arguments.quick else (arguments.channels, arguments.repeats)
    cases: dict[str, Any] = {}
    table = Table(title=f"TGraph, {channels} channels, one thread, {CONFIGS} configurations", title_justify="left")
    for heading in ("graph", "nodes", "ms", "at once", "MiB", "steps/s", "at once", "MiB"):
        table.add_column(heading, justify="left" if heading == "graph" else "right")
    forms = Table(title=f"reading {CONFIGS} configurations", title_justify="left")
    for heading in ("graph", "form", "ms", "MiB"):
        forms.add_column(heading, justify="right" if heading in ("ms", "MiB") else "left")
    with tempfile.TemporaryDirectory() as temporary:
        for title, count in layers.items():
            path = Path(temporary) / f"{count}.npz"
            write_graph(path, count)
            for how, prunes in (("pruned", True), ("whole", False)):
                folder = Path(temporary) / how
                prepare_graph(read_graph(path), folder, prunes=prunes)
                title_how = f"{title}, {how}"
                cases[title_how] = one = _in_own_process(measure_case, folder, path.stem, channels, repeats)
                scoring, training = one["scoring"], one["training"]
                cells = (
                    f"{one['nodes']:,}",
                    f"{scoring['ms']:,.0f} ({scoring['least']:,.0f} to {scoring['most']:,.0f})",
                    str(scoring["at_once"]),
                    f"{scoring['mib']:,.0f}",
                )
                rate = f"{training['steps_per_second']:.2f}"
                table.add_row(title_how, *cells, rate, str(training["at_once"]), f"{training['mib']:,.0f}")
                console.print(f"{title_how}: {scoring['ms']:,.0f} ms", highlight=False)
            found = reading(path, read_prepared(Path(temporary) / "pruned", path.stem), Path(temporary), repeats)
            cases[f"{title}, reading"] = found
            for form, size in found.items():
                forms.add_row(title, form, f"{size['ms']:.2f}", f"{size['bytes'] / 2**20:.1f}")
    console.print(table)
    console.print(forms)
    settings = {"quick": arguments.quick, "channels": channels, "repeats": repeats, "configs": CONFIGS}
    write_result(arguments.json, "tpugraphs_speed", settings, {"cases": cases})


if __name__ == "__main__":
    main()
