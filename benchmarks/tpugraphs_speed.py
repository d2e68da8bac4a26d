"""How much time and memory TGraph takes to score and to train on layouts of graphs of 3,000 and of 40,000 nodes.

The graphs are transformers as JAX passes them to XLA, with and without pruning. TGraph, which computes equal nodes once,
stands beside the plain computation of the same scores; each runs in a process of its own. The time and the bytes that
packing costs and saves are measured where configurations are read.
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
from tvm_gnn_cost.tpugraphs.losses import hinge
from tvm_gnn_cost.tpugraphs.models.tgraph import TGraph, TGraphConfig
from tvm_gnn_cost.tpugraphs.npz import read_graph, write_npz
from tvm_gnn_cost.tpugraphs.preparation import prepare_graph
from tvm_gnn_cost.tpugraphs.prepared_graph import PreparedGraph, read_prepared
from tvm_gnn_cost.tpugraphs.ranker import GraphInputs, score
from tvm_gnn_cost.tpugraphs.settings import RankerSettings
from tvm_gnn_cost.training.scale import Scale

CONFIGS = 128
#: A call that takes longer is made only once, and so is the plain computation of a large graph's share.
LONG_S = 10.0
#: Floats of one layer's output in the plain computation, which compares as many configurations at once as this allows.
ACTIVATIONS = 4e8
#: What is compared, by how it computes.
NETS: dict[str, type[TGraph]] = {"plain": PlainTGraph, "shared": TGraph}


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
    """Times some calls after a warm-up; a warm-up that takes long is the measurement itself."""
    taken = call_seconds(work, 1)
    if taken[0] < LONG_S:
        taken = call_seconds(work, repeats)
    return Seconds(statistics.median(taken), min(taken), max(taken), len(taken))


def measure_case(net: type[TGraph], folder: Path, name: str, channels: int, repeats: int, results: Any) -> None:
    """Scores configurations of a prepared graph, then trains on it; the target of a process of its own.

    Of a large graph, the plain computation can compare only a share of the configurations at once: this share is timed.
    """
    torch.set_num_threads(1)
    graph = read_prepared(folder, name)
    inputs = GraphInputs(graph, Scale.fit([graph.numbers]))
    torch.manual_seed(0)
    model = net(TGraphConfig(channels=channels)).eval()
    size = len(graph.opcode) * channels
    share = -(-CONFIGS // max(1, math.ceil(CONFIGS * size / ACTIVATIONS)))
    found: dict[str, Any] = {"nodes": len(graph.opcode)}
    scores: list[list[float]] = []

    def score_some(count: int) -> None:
        scores.append(score(model, inputs, np.arange(count), count, permutations=1).tolist())

    for title, count in {"scoring": share, "scoring all": CONFIGS}.items():
        if title == "scoring" or (net is TGraph and count > share):
            before = _reset_peak()
            taken = seconds(partial(score_some, count), repeats)
            found[title] = taken.ms() | {"configs": count, "mib": _peak() - before}
    found["scores"] = scores[0]
    # A backward pass keeps about five times what a forward pass needs.
    count = max(2, min(RankerSettings().configs_per_step, int(ACTIVATIONS / 5 / size)))
    optimizer = torch.optim.AdamW(model.train().parameters())
    assert graph.runtime is not None, "write_graph wrote them"
    runtime = torch.from_numpy(graph.runtime[:count].astype(np.float32))
    hidden = np.random.default_rng(0).random(len(graph.opcode)) < TGraphConfig().unknown_opcodes

    def step() -> None:
        optimizer.zero_grad()
        loss = hinge(model(inputs.with_configs(np.arange(count), hidden)), runtime)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    before = _reset_peak()
    taken = seconds(step, repeats)
    found["training"] = taken.ms() | {"configs": count, "mib": _peak() - before}
    results.put(found)


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
        raise RuntimeError(f"{target.__name__} of {arguments} ended with exit code {process.exitcode}")
    found: dict[str, Any] = results.get()
    return found


def _compare(arguments: tuple[object, ...]) -> dict[str, Any]:
    """What both computations take for one graph, the ratios, and whether their scores agree."""
    both = {title: _in_own_process(measure_case, net, *arguments) for title, net in NETS.items()}
    plain, shared = both["plain"], both["shared"]
    one, other = (np.array(found.pop("scores")) for found in (plain, shared))
    ratios = {
        what: {unit: plain[what][unit] / shared[what][unit] for unit in ("ms", "mib")} for what in ("scoring", "training")
    }
    agreement = {"kendall_tau": kendall_tau(one, other), "difference": float(abs(one - other).max() / one.std())}
    return {**both, "ratios": ratios, "agreement": agreement}


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
                prepare_graph(read_graph(path), folder, prunes=prunes)
                title_how = f"{title}, {how}"
                cases[title_how] = one = _compare((folder, path.stem, channels, repeats))
                _add_rows(table, title_how, one)
            found = reading(path, read_prepared(Path(temporary) / "pruned", path.stem), Path(temporary), repeats)
            cases[f"{title}, reading"] = found
            for form, size in found.items():
                forms.add_row(title, form, f"{size['ms']:.2f}", f"{size['bytes'] / 2**20:.1f}")
    console.print(table)
    console.print(forms)
    settings = {"quick": arguments.quick, "channels": channels, "repeats": repeats, "configs": CONFIGS}
    write_result(arguments.json, "tpugraphs_speed", settings, {"cases": cases})


def _add_rows(table: Table, title: str, case: dict[str, Any]) -> None:
    """Adds the rows of one graph to the table, and prints how much faster it became."""
    for what in ("scoring", "scoring all", "training"):
        if what not in case["shared"]:
            continue
        shared, plain = case["shared"][what], case["plain"].get(what)
        cells = [f"{case['shared']['nodes']:,}", what, str(shared["configs"])]
        for unit in ("ms", "mib"):
            ratio = f"{case['ratios'][what][unit]:.1f}" if plain else ""
            cells += [f"{plain[unit]:,.0f}" if plain else "", f"{shared[unit]:,.0f}", ratio]
        table.add_row(title, *cells, f"{case['agreement']['kendall_tau']:.4f}" if what == "scoring" else "")
        console.print(f"{title}, {what}: {shared['ms']:,.0f} ms", highlight=False)


if __name__ == "__main__":
    main()
