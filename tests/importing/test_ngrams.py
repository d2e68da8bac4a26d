from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.installed import has

pytestmark = pytest.mark.skipif(not has("s_tir"), reason="needs today's TVM")

POOL = {"ngram_counts": [0, 4], "ngram_indexes": [3, 0, 1, 2, 6, 5, 4], "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]}
ROWS = np.array([[1, 1, 3, 3, 3, 7, 8], [8, 6, 7, 5, 6, 8, 2]], np.int32)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("sizes", "skips"), [((1, 1), 0), ((2, 2), 0), ((2, 2), 5), ((1, 2), 3)])
@pytest.mark.parametrize("is_one_row", [True, False])
def test_counts(mode: str, sizes: tuple[int, int], skips: int, is_one_row: bool) -> None:
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=sizes[0], max_gram_length=sizes[1],
        max_skip_count=skips, weights=[0.5, 2.0, 3.0, 1.0, 4.0, 0.25, 1.5], **POOL,
    )  # fmt: skip
    check(node, {"x": ROWS[0] if is_one_row else ROWS})


def test_text_is_refused() -> None:
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
        ngram_counts=[0], ngram_indexes=[0], pool_strings=["a"],
    )  # fmt: skip
    with pytest.raises(InputError, match="it is of type string"):
        check(node, {"x": ROWS}, wanted=[])
