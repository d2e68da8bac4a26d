from __future__ import annotations

import filecmp
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.special import expit

from tests import synthetic
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.buffer_stores import buffer_stores
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.models.buffer_store_trees import grow_trees
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.scoring.checkpoint import DEFAULT, DEFAULT_AUTO_SCHEDULER, Checkpoint
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.training.fit import FitSettings, fit, new_checkpoint

SMALL = replace(PRESETS["gnn"], hidden=16, layers=2, head=(16,))


@pytest.fixture
def checkpoint() -> Checkpoint:
    return new_checkpoint(SMALL, synthetic.vectors(), synthetic.programs(2, 4), seed=0)


def test_a_checkpoint_scores_the_same_after_a_round_trip(tmp_path: Path, checkpoint: Checkpoint) -> None:
    programs, validation = synthetic.programs(16, 16, seed=1, failed=3), synthetic.programs(4, 16, seed=2)
    settings = FitSettings(epochs=1, trees=20, tasks_per_batch=2, learning_rate=5e-3)
    trained = fit(checkpoint, programs, validation, settings, tmp_path).checkpoint
    trained.save(tmp_path / "model.safetensors")
    loaded = Checkpoint.load(tmp_path / "model.safetensors")
    population = synthetic.graphs(9, seed=7)
    np.testing.assert_array_equal(Scorer(trained).score(population), Scorer(loaded).score(population))
    assert loaded.card["training"]["train_programs"] == 16 * 16
    assert loaded.config == trained.config == checkpoint.config
    assert loaded.calibration == trained.calibration != (1.0, 0.0)
    assert loaded.value_names == trained.value_names
    assert loaded.vectors.words == trained.vectors.words
    assert loaded.trees is not None
    assert trained.trees is not None
    assert loaded.trees.scale == trained.trees.scale != 1.0


def test_further_tensors_survive_a_round_trip(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "model.safetensors"
    replace(checkpoint, extra={"a.b": torch.arange(3)}, extra_info={"tasks": [1]}).save(path)
    loaded = Checkpoint.load(path)
    assert {name: tensor.tolist() for name, tensor in loaded.extra.items()} == {"a.b": [0, 1, 2]}
    assert loaded.extra_info == {"tasks": [1]}
    assert set(loaded.state) == set(checkpoint.state)


def test_the_same_model_is_the_same_file(tmp_path: Path, checkpoint: Checkpoint) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    checkpoint.save(first)
    Checkpoint.load(first).save(second)
    assert filecmp.cmp(first, second, shallow=False)


@pytest.mark.parametrize("path", [DEFAULT, DEFAULT_AUTO_SCHEDULER])
def test_the_shipped_checkpoints_load_and_score(path: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(path)
    scores = Scorer(checkpoint).score(synthetic.graphs(8, detail=checkpoint.config.detail))
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) == 8
    assert checkpoint.card["networks"]
    checkpoint.save(tmp_path / "again")
    # Compared as files: pytest takes longer to describe how megabytes differ than a test may run.
    assert filecmp.cmp(tmp_path / "again", path, shallow=False)


def test_what_is_not_a_checkpoint_is_named(tmp_path: Path, checkpoint: Checkpoint) -> None:
    with pytest.raises(InputError, match=r"missing\.safetensors: there is no such checkpoint"):
        Checkpoint.load(tmp_path / "missing.safetensors")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x80\x04. not a pickle either")
    with pytest.raises(InputError, match=r"broken\.safetensors: not a checkpoint"):
        Checkpoint.load(broken)
    checkpoint.save(tmp_path / "cut.safetensors")
    whole = (tmp_path / "cut.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.safetensors: not a checkpoint"):
        Checkpoint.load(tmp_path / "cut.safetensors")
    replace(checkpoint, value_names=("wings", *checkpoint.value_names[1:])).save(tmp_path / "old.safetensors")
    with pytest.raises(InputError, match=r"old\.safetensors: .* it reads the node feature 'wings'"):
        Checkpoint.load(tmp_path / "old.safetensors")


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file with its JSON changed."""
    with safe_open(path, framework="pt") as file:
        metadata, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    info = json.loads(metadata["tvm_gnn_cost"])
    change(info)
    save_file(tensors, path, metadata={**metadata, "tvm_gnn_cost": json.dumps(info)})
    return path


def changed(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """The file with its tensors changed."""
    with safe_open(path, framework="pt") as file:
        metadata, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tensors)
    save_file(tensors, path, metadata=metadata)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda info: info.update(version=2), "checkpoint format 2, and this version of tvm-gnn-cost reads 4"),
        (lambda info: info.pop("version"), "checkpoint format None"),
        (lambda info: info.pop("config"), "the checkpoint is damaged: a field is missing: .*'config'"),
        (lambda info: info.update(config=[1]), "the checkpoint is damaged: expected a JSON object .* in 'config'"),
        (lambda info: info["config"].update(hidden="16"), "the field 'config.hidden' has the wrong value '16'"),
        (lambda info: info["config"].update(head=16), "the field 'config.head' has the wrong value 16"),
        (lambda info: info["config"].update(groups=[1]), r"the field 'config.groups\[0\]' has the wrong value"),
        (lambda info: info["config"].update(detail="forest"), "the field 'config.detail' has the wrong value 'forest'"),
        (lambda info: info["config"].update(conv=None), "the field 'config.conv' has the wrong value None"),
        (lambda info: info.update(value_names=3), "the field 'value_names' has the wrong value 3"),
        (lambda info: info.update(value_names=[3]), r"the field 'value_names\[0\]' has the wrong value"),
        (lambda info: info.update(vectors=None), "the field 'vectors' has the wrong value None"),
        (lambda info: info["vectors"].pop("words"), "the node type vectors lack 'words'"),
        (lambda info: info["vectors"].update(words=[1]), "the node type vectors' 'words' are not a list of strings"),
        (lambda info: info["vectors"].update(words=["a"] * 99), "too small for 99 words"),
        (lambda info: info.update(calibration=[1.0]), "the field 'calibration' is not two numbers"),
        (lambda info: info.update(calibration=["a", 1]), r"the field 'calibration\[0\]' has the wrong value"),
        (lambda info: info.update(calibration=1.0), "the field 'calibration' has the wrong value 1.0"),
        (lambda info: info.update(card=[]), "the field 'card' has the wrong value"),
        (lambda info: info.update(extra=None), "the field 'extra' has the wrong value None"),
        (lambda info: info.update(trees_scale="1"), "the field 'trees_scale' has the wrong value '1'"),
        (lambda info: info.update(trees_scale=math.inf), "the field 'trees_scale' is infinite"),
        (lambda info: info.update(calibration=[1, -math.inf]), "the field 'calibration' is infinite"),
        (lambda info: info.update(calibration=[1, math.nan]), r"the field 'calibration\[1\]' has the wrong value nan"),
        (lambda info: info.update(new=1), "the field 'new' is unknown"),
        (lambda info: info["config"].update(new=1), "the field 'config.new' is unknown"),
        (lambda info: info.update(card={"networks": 3}), "the field 'networks' has the wrong value 3"),
        (lambda info: info.update(card={"targets": [3]}), r"the field 'targets\[0\]' has the wrong value 3"),
        (lambda info: info.update(value_names=info["value_names"][::-1]), "differing in their order"),
        (lambda info: info["config"].update(layers=1 << 62), "layers must be between 1 and 65536"),
        (lambda info: info["config"].update(layers=60_000), "not fit the architecture: .* tensors for 60001 layers"),
        (
            lambda info: info["config"].update(head=[1] * 60_000),
            "not fit the architecture: .* tensors for 60002 layers",
        ),
        (lambda info: info["config"].update(hidden=65_536), "not fit the architecture: 'encoder.0.weight' is"),
        (lambda info: info["config"].update(hidden=0), "hidden must be between 1 and 65536, not 0"),
        (lambda info: info["config"].update(layers=0), "layers must be between 1 and 65536, not 0"),
        (lambda info: info["config"].update(type_dim=10**12), "type_dim must be between"),
        (lambda info: info["config"].update(costs=-1), "costs must be between"),
        (lambda info: info["config"].update(head=[0]), "a size of head must be between"),
        (lambda info: info["config"].update(ratio=0), "ratio must be between"),
        (lambda info: info["config"].update(dropout=5), "dropout must be between"),
        (lambda info: info["config"].update(context="deviation"), "it was trained with a population context"),
    ],
)
def test_damaged_json_is_named(
    tmp_path: Path, checkpoint: Checkpoint, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save(path)
    with pytest.raises(InputError, match=rf"model\.safetensors: .*{message}"):
        Checkpoint.load(rewritten(path, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda info: info["config"].update(hidden=8),
        lambda info: info["config"].update(layers=1),
        lambda info: info["config"].update(costs=1),
        lambda info: info["config"].update(stores=False),
    ],
)
def test_weights_of_another_architecture_are_refused(
    tmp_path: Path, checkpoint: Checkpoint, change: Callable[[dict[str, Any]], None]
) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save(path)
    with pytest.raises(InputError, match=r"model\.safetensors: .* the weights do not fit the architecture"):
        Checkpoint.load(rewritten(path, change))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["model.head.0.weight", "model.mean", "vectors.node_type_rows", "extra.now.x"])
def test_weights_that_are_no_numbers_are_refused(
    tmp_path: Path, checkpoint: Checkpoint, part: str, value: float
) -> None:
    path = tmp_path / "model.safetensors"
    replace(checkpoint, extra={"now.x": torch.zeros(2), "buffer.0.latency": torch.tensor([math.inf])}).save(path)
    Checkpoint.load(path)
    changed(path, lambda tensors: tensors[part].flatten().__setitem__(0, value))
    with pytest.raises(InputError, match=rf"model\.safetensors: .* the tensor '{part}' holds NaN or infinity"):
        Checkpoint.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.update({"new": torch.zeros(1)}), "the tensor 'new' is unknown"),
        (lambda tensors: tensors.update({"model.new": torch.zeros(1)}), "an unknown tensor 'new'"),
        (lambda tensors: tensors.pop("model.mean"), "no tensor 'mean'"),
        (lambda tensors: tensors["model.std"].zero_(), "a deviation of its node features is not positive"),
        (lambda tensors: tensors["model.std"].fill_(math.nan), "a deviation of its node features is not positive"),
        (
            lambda tensors: tensors.update({"model.mean": tensors["model.mean"].to(torch.int64)}),
            "'mean' is torch.int64",
        ),
    ],
)
def test_other_tensors_are_refused(
    tmp_path: Path, checkpoint: Checkpoint, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save(path)
    with pytest.raises(InputError, match=rf"model\.safetensors: .*{message}"):
        Checkpoint.load(changed(path, change))


def test_a_checkpoint_knows_the_scheduler_that_it_was_trained_for(checkpoint: Checkpoint) -> None:
    assert Checkpoint.load(DEFAULT).scheduler == "meta-schedule"
    other = Checkpoint.load(DEFAULT_AUTO_SCHEDULER)
    assert other.scheduler == "auto-scheduler"
    other.check_scheduler("auto-scheduler")
    with pytest.raises(
        InputError, match=r"auto-scheduler\.safetensors was trained on programs of auto-scheduler, and "
    ):
        other.check_scheduler("meta-schedule")
    checkpoint.check_scheduler("meta-schedule")
    replace(checkpoint, card={"targets": ["{}", "llvm"]}).check_scheduler("auto-scheduler")


def test_vectors_of_another_length_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(
        InputError, match=r"the checkpoint has node type vectors of length 8, .* reads 16; train it again"
    ):
        Scorer(replace(checkpoint, vectors=synthetic.vectors(8)))


def test_a_score_is_the_mean_of_the_networks_and_the_trees(checkpoint: Checkpoint) -> None:
    population, columns = synthetic.graphs(9), Scorer(checkpoint).columns
    rows = buffer_stores(population, columns)
    trees = grow_trees(rows, np.linspace(0, 1, 9, dtype=np.float32), np.zeros(9, np.int32), count=20, seed=0)
    network = Scorer(checkpoint).score(population)
    both = Scorer(replace(checkpoint, trees=replace(trees, scale=2.0))).score(population)
    np.testing.assert_allclose(both, (network + 2 * 2 * trees.score(rows)) / 3)


def test_the_network_sees_a_shortlist_of_the_trees(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    population = synthetic.graphs(19)
    rows = buffer_stores(population, Scorer(checkpoint).columns)
    trees = grow_trees(rows, np.linspace(0, 1, 19, dtype=np.float32), np.zeros(19, np.int32), count=20, seed=0)
    scorer = Scorer(replace(checkpoint, trees=trees))
    complete, by_trees = scorer.score(population), scorer.tree_scores(population)
    seen, embed = [], scorer.model.embed
    monkeypatch.setattr(scorer.model, "embed", lambda batch: seen.append(batch.num_graphs) or embed(batch))
    scores = scorer.score_shortlist(population, 5)
    assert seen == [5]
    listed = np.argsort(-by_trees)[:5]
    np.testing.assert_allclose(scores[listed], complete[listed], rtol=1e-5)
    others = np.setdiff1d(np.arange(19), listed)
    shift = (complete - by_trees)[listed].mean()
    np.testing.assert_allclose(scores[others], by_trees[others] + shift, rtol=1e-5)
    np.testing.assert_allclose(scorer.score_shortlist(population, 19), complete, rtol=1e-5)


def test_a_shortlist_leaves_empty_graphs_last(checkpoint: Checkpoint) -> None:
    population = synthetic.graphs(12)
    rows = buffer_stores(population, Scorer(checkpoint).columns)
    trees = grow_trees(rows, np.linspace(0, 1, 12, dtype=np.float32), np.zeros(12, np.int32), count=20, seed=0)
    scorer = Scorer(replace(checkpoint, trees=replace(trees, scale=-1.0)))
    empty = population.select([0])
    empty = replace(
        empty,
        node_type=empty.node_type[:0],
        x=empty.x[:0],
        edge_index=empty.edge_index[:, :0],
        edge_type=empty.edge_type[:0],
        node_offsets=np.zeros(2, np.int64),
        edge_offsets=np.zeros(2, np.int64),
    )
    scores = scorer.score_shortlist(ProgramGraphs.concatenate([empty, population]), 4)
    assert scores[0] == -np.inf
    assert np.isfinite(scores[1:]).all()


def test_damaged_trees_are_named(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "model.safetensors"
    rows = buffer_stores(synthetic.graphs(9), Scorer(checkpoint).columns)
    trees = grow_trees(
        replace(rows, x=rows.x[:, 1:]),
        np.linspace(0, 1, 9, dtype=np.float32),
        np.zeros(9, np.int32),
        count=2,
        seed=0,
    )
    replace(checkpoint, trees=trees).save(path)
    with pytest.raises(InputError, match=r"model\.safetensors: the checkpoint is damaged: its trees read rows of"):
        Checkpoint.load(path)


def test_making_a_scorer_draws_no_random_numbers(checkpoint: Checkpoint) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    Scorer(checkpoint)
    assert torch.equal(torch.rand(2), expected)


def test_the_number_of_graphs_at_once_does_not_matter(checkpoint: Checkpoint) -> None:
    scorer, population = Scorer(checkpoint), synthetic.graphs(9)
    np.testing.assert_allclose(scorer.score(population, 2), scorer.score(population), rtol=1e-5)
    assert scorer.score(population.select([])).shape == (0,)


def test_a_batch_holds_the_columns_that_the_model_reads(checkpoint: Checkpoint) -> None:
    population = synthetic.graphs(3)
    names = checkpoint.value_names[:3]
    few = replace(checkpoint, value_names=names[::-1])
    few.state = {**few.state, "mean": torch.zeros(3), "std": torch.ones(3), "encoder.0.weight": torch.zeros(32, 19)}
    batch = Scorer(few).batch(population)
    np.testing.assert_array_equal(batch.x.numpy(), population.x[:, [2, 1, 0]])


def test_a_programs_cost_is_shared_among_its_stores(checkpoint: Checkpoint) -> None:
    scorer, population = Scorer(checkpoint), synthetic.graphs(5)
    shares = scorer.store_shares(population)
    store = population.type_names.index("BufferStore")
    stores = [int((population.select([i]).node_type == store).sum()) for i in range(5)]
    assert [len(one) for one in shares] == stores
    assert all((one > 0).all() and one.sum() <= 1 + 1e-6 for one in shares if len(one))
    np.testing.assert_allclose(
        np.concatenate(shares[1:3]), np.concatenate(scorer.store_shares(population.select([1, 2]))), rtol=1e-5
    )
    without = replace(population, type_names=("BufferLoad", "Evaluate", "For"))
    assert [len(one) for one in scorer.store_shares(without)] == [0] * 5
    assert scorer.store_shares(population.select([])) == []


def test_what_the_model_says_of_each_node(checkpoint: Checkpoint) -> None:
    scorer, population = Scorer(checkpoint), synthetic.graphs(5)
    nodes = scorer.nodes(population)
    graph = np.repeat(np.arange(5), population.node_counts)
    np.testing.assert_allclose(np.bincount(graph, nodes.share), 1, rtol=1e-5)
    store = population.node_type == population.type_names.index("BufferStore")
    np.testing.assert_allclose(nodes.share[store], np.concatenate(scorer.store_shares(population)), rtol=1e-5)
    assert 0 == nodes.kept.min() < nodes.kept.max() == checkpoint.config.layers
    assert np.isnan(nodes.trees).all() == (checkpoint.trees is None)
    nothing = scorer.nodes(population.select([]))
    assert [len(one) for one in nothing] == [0, 0, 0]


def test_throughput_is_the_calibrated_score(checkpoint: Checkpoint) -> None:
    scorer = Scorer(replace(checkpoint, calibration=(0.5, -1.0)))
    scores = np.array([-np.inf, -2.0, 0.0, 3.0])
    np.testing.assert_allclose(scorer.throughput(scores), expit(0.5 * scores - 1))
    assert scorer.throughput(scores)[0] == 0
