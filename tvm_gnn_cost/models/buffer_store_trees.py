"""Boosted trees that score a program by a sum over its buffer stores, in an ensemble with the graph neural network."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xgboost
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.buffer_stores import BufferStores

#: Pairs of programs whose throughputs differ by less are ignored as noise.
_NOISE = 0.03
#: Maximum number of programs that each program is compared with.
_PARTNERS = 32
#: Relative throughput of failed programs.
_SLOWEST = 1e-3

#: With fewer rows, trees are grown on one thread: a second one gains nothing, and OpenMP's threads wait for each other
#: in a loop, which takes fifty times as long where another process needs the core.
_PARALLEL_ROWS = 32_768

_SETTINGS = {
    "tree_method": "hist",
    "max_depth": 8,
    "eta": 0.08,
    "subsample": 0.8,
    "colsample_bytree": 0.25,
    "base_score": 0.0,  # by default it depends on the version of XGBoost
}

#: XGBoost cannot predict while another thread sets a parameter; predictions use all cores anyway.
_PREDICTING = threading.Lock()

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BufferStoreTrees:
    """XGBoost's trees over ``graphs.buffer_stores``; a program's score is the sum over its buffer stores.

    TVM's XGBModel also sums over buffer stores, and regresses the throughput. These trees learn the ranking of a task's
    programs (RankNet loss, Burges et al. 2005) from node features, including those of the enclosing loops.

    Attributes:
        booster: XGBoost's model.
        scale: Factor that brings its output to the scale of the network's scores.
    """

    booster: xgboost.Booster
    scale: float = 1.0

    def score(self, stores: BufferStores) -> npt.NDArray[np.float64]:
        """Scores G programs: float64[G], higher is faster."""
        return np.bincount(stores.batch, self.of_each(stores), stores.num_graphs).astype(np.float64)

    def of_each(self, stores: BufferStores) -> npt.NDArray[np.float64]:
        """The contribution of each of S buffer stores to its program's score: float64[S]."""
        with _PREDICTING:
            self.booster.set_param({"nthread": torch.get_num_threads()})
            scores: npt.NDArray[np.float64] = self.scale * self.booster.inplace_predict(stores.x).astype(np.float64)
        return scores

    def to_tensor(self) -> Tensor:
        """XGBoost's serialized model, compressed: uint8[B]."""
        return torch.frombuffer(bytearray(zlib.compress(bytes(self.booster.save_raw("ubj")))), dtype=torch.uint8)

    @staticmethod
    def from_tensor(tensor: Tensor, scale: float, width: int) -> BufferStoreTrees:
        """The inverse of :meth:`to_tensor`.

        Args:
            tensor: uint8[B].
            scale: See the attribute.
            width: Number of features that it must have.

        Raises:
            InputError: the bytes are damaged, or the number of features differs.
        """
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(zlib.decompress(tensor.numpy().tobytes())))
        except (zlib.error, xgboost.core.XGBoostError) as error:
            raise InputError(f"its trees are damaged ({str(error).splitlines()[0]})") from error
        # XGBoost 2 does not read it where XGBoost 3 writes it, and would add 0.5 per buffer store.
        booster.set_param({"base_score": _SETTINGS["base_score"]})
        if booster.num_features() != width:
            raise InputError(f"its trees read rows of {booster.num_features()} values, not of {width}")
        return BufferStoreTrees(booster, scale)


def grow_trees(
    stores: BufferStores,
    throughput: Floats,
    task: npt.NDArray[np.int32],
    count: int,
    seed: int,
    *,
    start: npt.NDArray[np.float64] | None = None,
    earlier: BufferStoreTrees | None = None,
    weight: npt.NDArray[np.float64] | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> BufferStoreTrees:
    """Trains trees on P programs.

    Args:
        stores: Their buffer stores.
        throughput: float32[P], relative to the task's best program; 0 for failed programs.
        task: int32[P], index of the task.
        count: Number of trees.
        seed: Seed of the pairs of programs, and of the rows and columns of each tree.
        start: float64[P], scores that the trees are added to; 0 if None.
        earlier: Trees that the new ones are added to; the result has both.
        weight: float64[P], weight of each program, equal in a task; 1 if None.
        settings: XGBoost's parameters that differ from those of a training.
    """
    fast, slow, of_pair = _pairs(throughput, task, seed)
    size = len(throughput)
    start = np.zeros(size) if start is None else start
    of_pair = of_pair if weight is None else of_pair * weight[fast]

    def gradient(of_each: Floats, _: xgboost.DMatrix) -> tuple[Floats, Floats]:
        """First and second derivative of the loss with respect to the output of each buffer store."""
        score = start + np.bincount(stores.batch, of_each, size)
        wrong = 1 / (1 + np.exp(score[fast] - score[slow]))
        slope, curve = wrong * of_pair, wrong * (1 - wrong) * of_pair
        first = np.bincount(slow, slope, size) - np.bincount(fast, slope, size)
        second = np.bincount(slow, curve, size) + np.bincount(fast, curve, size)
        return first[stores.batch].astype(np.float32), np.maximum(second, 1e-6)[stores.batch].astype(np.float32)

    threads = torch.get_num_threads() if len(stores.x) >= _PARALLEL_ROWS else 1
    data = xgboost.DMatrix(stores.x, nthread=threads)
    chosen = {**_SETTINGS, **settings, "seed": seed, "nthread": threads}
    first = None if earlier is None else earlier.booster
    return BufferStoreTrees(xgboost.train(chosen, data, count, obj=gradient, xgb_model=first))


def _pairs(
    throughput: Floats, task: npt.NDArray[np.int32], seed: int
) -> tuple[Numbers, Numbers, npt.NDArray[np.float64]]:
    """Pairs of programs of a task: indices of the faster and the slower one, and weights that balance the programs.

    Every program is compared with all others of its task, or with :data:`_PARTNERS` random ones.
    """
    rng = np.random.default_rng(seed)
    logarithm = np.log(np.maximum(throughput, _SLOWEST))
    order = rng.permutation(len(task))
    order = order[np.argsort(task[order], kind="stable")]
    starts = np.searchsorted(task[order], task[order])
    sizes = np.searchsorted(task[order], task[order], side="right") - starts
    place = np.arange(len(order)) - starts
    pairs = []
    # With a task's programs in a circle, each is compared with the next ones, up to half of the circle.
    for distance in range(1, _PARTNERS // 2 + 1):
        meets = (2 * distance < sizes) | ((2 * distance == sizes) & (place < distance))
        left = np.flatnonzero(meets)
        right = starts[left] + (place[left] + distance) % sizes[left]
        pairs.append((order[left], order[right], 1 / np.minimum(sizes[left], _PARTNERS + 1)))
    left, right, weight = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    difference = logarithm[left] - logarithm[right]
    told = np.abs(difference) > _NOISE
    left, right, weight, difference = left[told], right[told], weight[told], difference[told]
    return np.where(difference > 0, left, right), np.where(difference > 0, right, left), weight
