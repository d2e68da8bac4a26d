"""A trained model: its checkpoint, and how it scores all configurations of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tvm_gnn_cost.errors import InputError, check_range
from tvm_gnn_cost.scoring.tensor_file import check_finite, read_tensors, with_prefix, write_tensors
from tvm_gnn_cost.tpugraphs.format import KERNEL_FEATURES, NODE_NUMBERS
from tvm_gnn_cost.tpugraphs.models.cheb_sage import ChebSage, ChebSageConfig
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput, KernelInput, ModelConfig, RankingModel
from tvm_gnn_cost.tpugraphs.models.gru import GRUConfig, GRURuntime
from tvm_gnn_cost.tpugraphs.models.kernel_costs import KernelCosts, KernelCostsConfig
from tvm_gnn_cost.tpugraphs.models.rank_classes import RankClasses, RankClassesConfig
from tvm_gnn_cost.tpugraphs.models.tgraph import TGraph, TGraphConfig
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph
from tvm_gnn_cost.training.scale import Scale
from tvm_gnn_cost.typed_json import from_json

#: Each model and its settings, by the name that the command line and checkpoints use.
MODELS: Mapping[str, tuple[Callable[[Any], RankingModel], type[ModelConfig]]] = {
    "tgraph": (TGraph, TGraphConfig),
    "cheb-sage": (ChebSage, ChebSageConfig),
    "rank-classes": (RankClasses, RankClassesConfig),
    "gru": (GRURuntime, GRUConfig),
    "kernel-costs": (KernelCosts, KernelCostsConfig),
}
#: The model that ranks only graphs that were prepared with kernels.
_READS_KERNELS = "kernel-costs"
_FORMAT_VERSION = 1
#: Maximum of any size in a checkpoint; far above the channels and layers of real models.
_LARGEST = 4096


@dataclass
class Ranker:
    """A model with all that it needs to score a prepared graph.

    Attributes:
        model: One of :data:`MODELS`.
        config: The model's settings.
        scale: Standardises node features.
        state: The model's weights by name.
        configs_per_step: How many configurations are scored together, as many as in training.
        is_pruned: Whether it was trained on pruned graphs; it ranks graphs that were prepared in the same way.
        card: What it was trained on and how; JSON.
    """

    model: str
    config: ModelConfig
    scale: Scale
    state: dict[str, Tensor]
    configs_per_step: int
    is_pruned: bool = True
    card: dict[str, Any] = field(default_factory=dict)

    @property
    def collection(self) -> str | None:
        """The collection that it was trained on, if its card names one."""
        return self.card.get("collection")

    @property
    def training(self) -> dict[str, Any]:
        """The card's part about the training: the settings, the names of the graphs, the validation error."""
        training: dict[str, Any] = self.card.get("training", {})
        return training

    def save(self, path: Path) -> None:
        """Writes one safetensors file, whole or not at all."""
        tensors = {f"model.{name}": tensor for name, tensor in self.state.items()}
        tensors |= {"mean": torch.from_numpy(self.scale.mean), "deviation": torch.from_numpy(self.scale.deviation)}
        info = {
            "tpugraphs_version": _FORMAT_VERSION,
            "model": self.model,
            "config": asdict(self.config),
            "configs_per_step": self.configs_per_step,
            "is_pruned": self.is_pruned,
            "is_log": self.scale.is_log,
            "card": self.card,
        }
        write_tensors(path, tensors, info)

    @staticmethod
    def load(path: Path) -> Ranker:
        """Reads a file that :meth:`save` wrote.

        Raises:
            InputError: the file is missing, damaged or of another kind or version.
        """
        tensors, info = read_tensors(path, "tvm-gnn-cost tpugraphs train")
        if info.get("tpugraphs_version") != _FORMAT_VERSION:
            raise InputError(f"{path}: not a TpuGraphs model that this version reads; train it again")
        try:
            config = from_json(MODELS[info["model"]][1], info["config"])
            check_finite({name: tensor for name, tensor in tensors.items() if name != "deviation"})
            scale = Scale(tensors["mean"].numpy(), tensors["deviation"].numpy(), info["is_log"])
            state = with_prefix(tensors, "model.")
            _check_shapes(info["model"], config, state)
            ranker = Ranker(
                *(info["model"], config, scale, state, info["configs_per_step"], info["is_pruned"], info["card"])
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}: the checkpoint lacks or misstates the field {error}") from error
        except InputError as error:
            raise InputError(f"{path}: the checkpoint's settings are wrong: {error}") from error
        if any(part.shape != (NODE_NUMBERS,) for part in (scale.mean, scale.deviation)):
            raise InputError(f"{path}: the checkpoint's mean and deviation do not have {NODE_NUMBERS} values each")
        return ranker

    @property
    def needs_kernels(self) -> bool:
        """Whether it ranks only graphs that were prepared with kernels."""
        return self.model == _READS_KERNELS

    def build(self) -> RankingModel:
        """The network with its weights, in evaluation mode.

        Raises:
            InputError: the weights do not fit the network.
        """
        with torch.random.fork_rng(devices=[]):  # Drawing the initial weights must not advance the caller's generator.
            net = MODELS[self.model][0](self.config)
        try:
            net.load_state_dict(self.state)
        except RuntimeError as error:
            raise InputError(f"the checkpoint's weights do not fit its architecture: {error}") from error
        return net.eval()


def _check_shapes(model: str, config: ModelConfig, state: Mapping[str, Tensor]) -> None:
    """Refuses weights that do not fit the network, without building it: a file can claim any size.

    Raises:
        InputError: they do not fit.
    """
    for name, value in asdict(config).items():
        if isinstance(value, int) and not isinstance(value, bool):
            check_range(name, value, 0, _LARGEST)
    with torch.device("meta"):  # shapes alone, no memory
        wanted = {name: tensor.shape for name, tensor in MODELS[model][0](config).state_dict().items()}
    other = {
        name for name in wanted.keys() | state.keys() if name not in state or wanted.get(name) != state[name].shape
    }
    if other:
        raise InputError(f"the weights do not fit the architecture (differing in '{min(other)}')")


def check_kernels(model: str, graphs: Iterable[PreparedGraph]) -> None:
    """Refuses graphs without kernels for the model that reads them.

    Raises:
        InputError: a graph has none.
    """
    without = [graph.name for graph in graphs if graph.kernels is None]
    if model == _READS_KERNELS and without:
        raise InputError(f"{without[0]}: it was prepared without kernels; prepare it in another folder, with kernels")


class GraphInputs:
    """A prepared graph as tensors, without its configurations."""

    def __init__(self, graph: PreparedGraph, scale: Scale) -> None:
        self.graph = graph
        self.numbers = torch.from_numpy(scale.apply(graph.numbers))
        self.opcode = torch.from_numpy(graph.opcode)
        self.permutation = torch.from_numpy(graph.permutation)
        self.edge_index = torch.from_numpy(graph.edge_index)
        self.config_nodes = torch.from_numpy(graph.config_nodes)

    def with_configs(self, rows: npt.NDArray[np.int64], hidden: npt.NDArray[np.bool_] | None = None) -> ConfiguredInput:
        """The input of a model: the graph with some of its configurations.

        Args:
            rows: int64[k], the numbers of the configurations.
            hidden: bool[n], the nodes whose opcode is replaced with 0, unknown; None for no node.
        """
        configs = torch.from_numpy(np.ascontiguousarray(self.graph.configs(rows)))
        opcode = self.opcode if hidden is None else self.opcode.masked_fill(torch.from_numpy(hidden), 0)
        return ConfiguredInput(
            *(self.numbers, opcode, self.permutation, self.edge_index, self.config_nodes, configs),
            self._kernels(rows),
        )

    def _kernels(self, rows: npt.NDArray[np.int64]) -> KernelInput:
        if self.graph.kernels is None:
            nothing = torch.zeros(0, dtype=torch.long)
            return KernelInput(torch.zeros(0, KERNEL_FEATURES), nothing, nothing)
        return KernelInput(*map(torch.from_numpy, self.graph.kernels.of_configs(rows)))


def score(
    net: RankingModel,
    inputs: GraphInputs,
    rows: npt.NDArray[np.int64],
    at_once: int,
    permutations: int = 10,
    seed: int = 0,
) -> npt.NDArray[np.float64]:
    """Scores some configurations of a graph, float64[k]; a higher score means faster.

    A model may compare the configurations of one input with each other. Which ones share an input is drawn anew
    ``permutations`` times, and the scores are averaged (TGraph, Maksimov et al. 2024, section 2.5).

    Args:
        net: The model.
        inputs: The graph.
        rows: int64[k], the numbers of the configurations.
        at_once: Maximum number of configurations that share an input.
        permutations: How often to draw; a model that does not compare configurations scores once.
        seed: Seeds the draws.
    """
    if not net.compares:
        permutations = 1
    rng = np.random.default_rng(seed)
    total = np.zeros(len(rows))
    device = next(net.parameters()).device
    with torch.inference_mode():
        for _ in range(permutations):
            order = rng.permutation(len(rows))
            # Parts of equal size, so that no part compares only a handful.
            for part in np.array_split(order, max(1, -(-len(rows) // at_once))):
                total[part] += net(inputs.with_configs(rows[part]).to(device)).double().cpu().numpy()
    return total / permutations


def score_with_all(rankers: Sequence[Ranker], graph: PreparedGraph, permutations: int = 10) -> npt.NDArray[np.float64]:
    """Mean of the standardised scores of several models, float64[c] in the order of the prepared configurations.

    Args:
        rankers: The models, one or more.
        graph: The graph.
        permutations: See :func:`score`.

    Raises:
        InputError: a model's weights do not fit its network, its scores are not finite, or it needs kernels and the
            graph has none.
    """
    rows = np.arange(len(graph.config_rows))
    total = np.zeros(len(rows))
    for ranker in rankers:
        check_kernels(ranker.model, [graph])
        scores = score(ranker.build(), GraphInputs(graph, ranker.scale), rows, ranker.configs_per_step, permutations)
        if not np.isfinite(scores).all():
            raise InputError(
                f"{graph.name}: a model's scores are not finite; train it again, with a lower learning rate"
            )
        total += (scores - scores.mean()) / (scores.std() or 1.0)
    return total / len(rankers)
