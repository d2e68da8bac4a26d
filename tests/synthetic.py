"""Random graphs, measurements and node type vectors, for tests without TVM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, RaggedFeatures, TaskInfo
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

TYPES = ("BufferLoad", "BufferStore", "For")


def vectors(dim: int = 16) -> NodeTypeVectors:
    rows = np.random.default_rng(0).normal(size=(len(TYPES) + 50, dim)).astype(np.float32)
    return NodeTypeVectors(TYPES, rows, 3, 5, 50)


def graphs(count: int, seed: int = 0, detail: Detail = "statements") -> ProgramGraphs:
    """Random trees of 4 to 20 nodes with random values and some LOOP edges."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 21, count)
    edges, relation, edge_counts = [], [], []
    for size in sizes:
        children = np.arange(1, size)
        parents = (rng.random(size - 1) * children).astype(np.int64)
        loops = rng.integers(0, size, (2, 3))
        edges.append(np.concatenate([np.stack([parents, children]), loops], axis=1))
        relation += [0] * (size - 1) + [1] * 3
        edge_counts.append(size + 2)
    nodes = int(sizes.sum())
    # Four values vary; with all of them a few hundred programs would teach a model to memorise.
    values = np.zeros((nodes, len(VALUES)), np.float32)
    varying = [i for i, (name, _) in enumerate(VALUES) if name in ("extent", "loads", "dtype_bytes", "executions")]
    values[:, varying] = rng.normal(size=(nodes, len(varying)))
    return ProgramGraphs(
        TYPES,
        rng.integers(0, len(TYPES), nodes).astype(np.int32),
        values,
        np.concatenate(edges, axis=1).astype(np.int32),
        np.array(relation, np.int8),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([[0], np.cumsum(edge_counts)]).astype(np.int64),
        detail=detail,
    )


def programs(tasks: int, each: int, seed: int = 0, failed: int = 0) -> MeasuredPrograms:
    """Programs whose latency is a function of the mean of one node feature, which a model can learn.

    The first ``failed`` of them failed.
    """
    population = graphs(tasks * each, seed)
    column = [name for name, _ in VALUES].index("extent")
    owner = np.repeat(np.arange(len(population)), population.node_counts)
    mean = np.bincount(owner, population.x[:, column]) / population.node_counts
    latency = 1e-3 * np.exp(mean)
    latency[:failed] = np.inf
    infos = tuple(TaskInfo(f"hash-{seed}-{i}", f"task{i}", "{}", {f"net{i % 2}": 1 + i % 3}) for i in range(tasks))
    return MeasuredPrograms(
        population,
        infos,
        np.repeat(np.arange(tasks), each).astype(np.int32),
        latency,
        np.full(len(population), 0.01, np.float32),
        ("run-timeout",) * failed + ("",) * (len(population) - failed),
        ("random",) * len(population),
    )


def with_features(measured: MeasuredPrograms, seed: int = 0) -> MeasuredPrograms:
    """The programs with random per-store features, 1 to 3 stores each; the first column is the logarithm of speed."""
    rng = np.random.default_rng(seed)
    matrices = [rng.random((rng.integers(1, 4), PER_STORE_COLUMNS)).astype(np.float32) for _ in range(len(measured))]
    for matrix, latency in zip(matrices, measured.latency, strict=True):
        matrix[:, 0] = -np.log(latency) if np.isfinite(latency) else -10
    return replace(measured, per_store_features=RaggedFeatures.from_matrices(matrices))


def with_telling_features(measured: MeasuredPrograms, scale: float = 1.0) -> MeasuredPrograms:
    """The programs with features of 1 to 3 stores, of which the first says how fast they are; program 5 has none.

    Args:
        measured: The programs.
        scale: Largest value of the other features, which are random.
    """
    rng = np.random.default_rng(0)
    matrices = [scale * rng.random((1 + i % 3, PER_STORE_COLUMNS), np.float32) for i in range(len(measured))]
    for matrix, throughput in zip(matrices, measured.throughput(), strict=True):
        matrix[:, 0] = throughput / len(matrix)
    matrices[5] = matrices[5][:0]
    return replace(measured, per_store_features=RaggedFeatures.from_matrices(matrices))
