"""A trained model of configurations: its file, and how it scores all configurations of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tvm_gnn_cost.models.cheb_sage import ChebSage, ChebSageConfig
from tvm_gnn_cost.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig
from tvm_gnn_cost.models.gru import GRUConfig, GRURuntime
from tvm_gnn_cost.models.rank_classes import RankClasses, RankClassesConfig
from tvm_gnn_cost.models.tgraph import TGraph, TGraphConfig
from tvm_gnn_cost.tpugraphs.prepare import PreparedGraph
from tvm_gnn_cost.tpugraphs.scale import Scale
from tvm_gnn_cost.training.tensor_file import part, read_tensors, write_tensors

#: Model and settings by the name that the command line and the files use.
MODELS: Mapping[str, tuple[Any, Any]] = {
    "tgraph": (TGraph, TGraphConfig),
    "cheb-sage": (ChebSage, ChebSageConfig),
    "rank-classes": (RankClasses, RankClassesConfig),
    "gru": (GRURuntime, GRUConfig),
}
_FORMAT_VERSION = 1


@dataclass
class Ranker:
    """A model with all that it needs to score a prepared graph.

    Attributes:
        model: One of :data:`MODELS`.
        config: Its settings.
        scale: Of the node features.
        state: Its weights.
        configs_per_step: As many configurations are scored together as were in training.
        is_pruned: Whether the graphs that it was trained on were; so must be those that it ranks.
        card: What it was trained on and how; JSON-able.
    """

    model: str
    config: EncoderConfig
    scale: Scale
    state: dict[str, Tensor]
    configs_per_step: int
    is_pruned: bool = True
    card: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes one safetensors file."""
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
        """Reads what :meth:`save` wrote.

        Raises:
            ValueError: the file is missing, is none, or is one of another version.
        """
        tensors, info = read_tensors(path, "tvm-gnn-cost tpugraphs train")
        if info.get("tpugraphs_version") != _FORMAT_VERSION:
            raise ValueError(
                f"{path}: not a model of TpuGraphs' configurations that this version reads; train it again"
            )
        try:
            settings = MODELS[info["model"]][1](**info["config"])
            scale = Scale(tensors["mean"].numpy(), tensors["deviation"].numpy(), info["is_log"])
            state = part(tensors, "model.")
            return Ranker(
                *(info["model"], settings, scale, state, info["configs_per_step"], info["is_pruned"], info["card"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: the checkpoint lacks or misstates the field {error}") from error

    def build(self) -> ConfigurationModel:
        """The network with its weights.

        Raises:
            ValueError: the weights do not fit it.
        """
        with torch.random.fork_rng(devices=[]):  # initial weights, replaced at once, must not cost random numbers
            net: ConfigurationModel = MODELS[self.model][0](self.config)
        try:
            net.load_state_dict(self.state)
        except RuntimeError as error:
            raise ValueError(f"the checkpoint's weights do not fit its architecture: {error}") from error
        return net.eval()


class GraphInputs:
    """The tensors of one graph, of which the configurations alone change from step to step."""

    def __init__(self, graph: PreparedGraph, scale: Scale) -> None:
        self.graph = graph
        self.numbers = torch.from_numpy(scale.apply(graph.numbers))
        self.opcode = torch.from_numpy(graph.opcode)
        self.permutation = torch.from_numpy(graph.permutation)
        self.edge_index = torch.from_numpy(graph.edge_index)
        self.config_nodes = torch.from_numpy(graph.config_nodes)

    def of(self, rows: npt.NDArray[np.int64]) -> ConfiguredInput:
        """The graph with some of its configurations."""
        configs = torch.from_numpy(np.ascontiguousarray(self.graph.configs(rows)))
        return ConfiguredInput(self.numbers, self.opcode, self.permutation, self.edge_index, self.config_nodes, configs)


def score(
    net: ConfigurationModel,
    inputs: GraphInputs,
    rows: npt.NDArray[np.int64],
    at_once: int,
    permutations: int = 10,
    seed: int = 0,
) -> npt.NDArray[np.float64]:
    """Scores of some configurations of a graph, higher is faster, float64[k].

    A model may compare the configurations that it is given at once: who is among them is drawn anew ``permutations``
    times, and the scores are averaged (TGraph, Maksimov et al. 2024, section 2.5).

    Args:
        net: The model.
        inputs: The graph.
        rows: int64[k], which configurations.
        at_once: Configurations that are scored together.
        permutations: How often.
        seed: Of the draws.
    """
    if not net.compares:
        permutations = 1
    rng = np.random.default_rng(seed)
    total = np.zeros(len(rows))
    device = next(net.parameters()).device
    with torch.inference_mode():
        for _ in range(permutations):
            order = rng.permutation(len(rows))
            # Parts of equal size, so that none is compared with a handful alone.
            for some in np.array_split(order, max(1, -(-len(rows) // at_once))):
                total[some] += net(inputs.of(rows[some]).to(device)).double().cpu().numpy()
    return total / permutations


def score_with_all(rankers: Sequence[Ranker], graph: PreparedGraph, permutations: int = 10) -> npt.NDArray[np.float64]:
    """Mean of the standardised scores of several models, float64[c] in the order of the prepared configurations.

    Raises:
        ValueError: a model's scores are not finite.
    """
    rows = np.arange(len(graph.config_rows))
    total = np.zeros(len(rows))
    for ranker in rankers:
        scores = score(ranker.build(), GraphInputs(graph, ranker.scale), rows, ranker.configs_per_step, permutations)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{graph.name}: a model's scores are not finite; train it again, with a lower learning rate"
            )
        total += (scores - scores.mean()) / (scores.std() or 1.0)
    return total / len(rankers)
