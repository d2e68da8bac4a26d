from __future__ import annotations

import json
from pathlib import Path

import fasttext
import numpy as np
import pytest

from tests.graphs import trees
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors, plot_vectors, random_walks, train_vectors
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation


@pytest.fixture(scope="module")
def graphs() -> ProgramGraphs:
    """Real syntax trees: a matrix product and an elementwise operator, as written and scheduled."""
    return trees.graphs()


@pytest.fixture(scope="module")
def vectors(graphs: ProgramGraphs) -> NodeTypeVectors:
    return train_vectors(graphs, walks=3000, epochs=3)


NAMES = ["For", "Add", "Call.exp", "</s>", "Call.expm1", "FloorModulo", "x", "", "é", "Schleife.größer", "循环", "<>"]


def test_vectors_are_those_of_fasttext(graphs: ProgramGraphs, tmp_path: Path) -> None:
    names = np.array([*graphs.type_names, "größer"], dtype=object)
    corpus = tmp_path / "corpus.txt"
    walks = [" ".join(line) for line in names[random_walks(graphs, 500, 8, 0)].tolist()]
    corpus.write_text("\n".join(f"{line} größer" for line in walks) + "\n")
    # Twelve threads, because fewer leave a part of FastText's matrix without a value.
    for shortest, longest, buckets in ((3, 5, 500), (1, 2, 97), (0, 0, 0)):
        model = fasttext.train_unsupervised(
            str(corpus), dim=7, minCount=1, minn=shortest, maxn=longest, bucket=buckets, thread=12, epoch=1, verbose=0
        )
        ours = NodeTypeVectors(tuple(model.words), model.get_input_matrix(), shortest, longest, buckets)
        for name in [*NAMES, *names]:
            np.testing.assert_allclose(ours.vector(name), model.get_word_vector(name), atol=1e-6, err_msg=name)


def test_the_same_seed_gives_the_same_vectors(graphs: ProgramGraphs) -> None:
    first, again, other = (train_vectors(graphs, walks=200, epochs=1, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.rows, again.rows)
    assert not np.array_equal(first.rows, other.rows)
    assert np.isfinite(first.rows).all()


def test_every_type_gets_a_vector_and_unseen_ones_are_near_their_likes(
    graphs: ProgramGraphs, vectors: NodeTypeVectors
) -> None:
    assert set(vectors.words) - {"</s>"} == set(graphs.type_names)
    matrix = vectors.matrix([*graphs.type_names, "BufferStoreMasked"])
    assert (matrix.shape, matrix.dtype) == ((len(graphs.type_names) + 1, 16), np.float32)
    assert np.isfinite(matrix).all()
    assert (np.linalg.norm(matrix, axis=1) > 0).all()
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    nearest = graphs.type_names[int(np.argmax(unit[:-1] @ unit[-1]))]
    assert nearest.startswith("Buffer")
    assert vectors.matrix([]).shape == (0, 16)


def test_vectors_survive_a_checkpoint(vectors: NodeTypeVectors) -> None:
    arrays, meta = vectors.to_arrays()
    again = NodeTypeVectors.from_arrays(arrays, json.loads(json.dumps(meta)))
    assert (again.words, again.buckets, again.dim) == (vectors.words, vectors.buckets, vectors.dim)
    np.testing.assert_array_equal(again.matrix(NAMES), vectors.matrix(NAMES))


def test_a_damaged_checkpoint_is_a_clear_error(vectors: NodeTypeVectors) -> None:
    arrays, meta = vectors.to_arrays()
    with pytest.raises(InputError, match="lack 'min_chars'"):
        NodeTypeVectors.from_arrays(arrays, {"words": [], "max_chars": 3})
    with pytest.raises(InputError, match="lack 'node_type_rows'"):
        NodeTypeVectors.from_arrays({}, meta)
    with pytest.raises(InputError, match="too small for"):
        NodeTypeVectors.from_arrays({"node_type_rows": arrays["node_type_rows"][:3]}, meta)
    for name, value in (("words", "For"), ("words", [1]), ("words", None), ("min_chars", "3"), ("max_chars", None)):
        with pytest.raises(InputError, match=f"'{name}'.* train"):
            NodeTypeVectors.from_arrays(arrays, {**meta, name: value})


def test_fasttext_that_fails_is_a_clear_error(graphs: ProgramGraphs) -> None:
    with pytest.raises(WorkError, match=r"^FastText failed: \w+Error"):
        train_vectors(graphs, walks=10, dim=-1)


def test_walks_follow_child_edges(graphs: ProgramGraphs) -> None:
    allowed = set()
    for i in range(len(graphs)):
        graph = graphs.select([i])
        for source, target in graph.edge_index[:, graph.edge_type == Relation.CHILD].T.tolist():
            pair = (int(graph.node_type[source]), int(graph.node_type[target]))
            allowed |= {pair, pair[::-1]}
    walks = random_walks(graphs, 2000, 6, 0)
    assert (walks.shape, walks.dtype) == ((2000, 6), np.int32)
    taken = set(zip(walks[:, :-1].ravel().tolist(), walks[:, 1:].ravel().tolist(), strict=True))
    assert taken <= allowed
    assert len(taken) > 0.8 * len(allowed)
    assert set(walks[:, 0].tolist()) == set(graphs.node_type.tolist())


def test_a_walk_stays_on_a_tree_of_one_node() -> None:
    graph = ProgramGraphs(
        ("PrimFunc",), np.zeros(1, np.int32), np.zeros((1, 1), np.float32), np.zeros((2, 0), np.int32),
        np.zeros(0, np.int8), np.array([0, 1], np.int64), np.zeros(2, np.int64),
    )  # fmt: skip
    assert random_walks(graph, 3, 4, 0).tolist() == [[0] * 4] * 3


def test_what_cannot_be_trained_on_is_a_clear_error(graphs: ProgramGraphs) -> None:
    with pytest.raises(InputError, match="every graph is empty"):
        train_vectors(graphs.select([]))
    spaced = ProgramGraphs(("For Loop",), *list(vars(graphs).values())[1:])
    with pytest.raises(InputError, match="node type name 'For Loop' is empty or has a space"):
        train_vectors(spaced)


def test_the_picture_is_drawn(vectors: NodeTypeVectors, tmp_path: Path) -> None:
    plot_vectors(vectors, tmp_path / "types.png")
    assert (tmp_path / "types.png").read_bytes().startswith(b"\x89PNG")
    plot_vectors(vectors, tmp_path / "types.svg")
    with pytest.raises(InputError, match=r"types\.doc: the file name must end in one of: .*\.png"):
        plot_vectors(vectors, tmp_path / "types.doc")
    assert "BufferStore" in (tmp_path / "types.svg").read_text()
    with pytest.raises(InputError, match="a plot needs at least two"):
        plot_vectors(NodeTypeVectors(("For",), vectors.rows, 3, 5, 10), tmp_path / "one.png")
