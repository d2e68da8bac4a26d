"""The groups of workloads that have a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tvm_gnn_cost.networks.layers import layer_names

#: Random operators of each kind that train a model.
_OPERATORS_A_KIND = 4
#: Layers of the group ``layers``, which are worth about as many tasks.
_LAYERS = 1200


def expand_groups(
    names: Iterable[str], training: Iterable[str], kinds: Collection[str], held_out: Iterable[str]
) -> tuple[str, ...]:
    """Names of workloads with the groups ``training``, ``held-out`` and ``layers`` replaced by their members.

    >>> expand_groups(["held-out", "dense/0"], [], [], ["resnet-18"])
    ('resnet-18', 'dense/0')
    """
    operators = (f"{kind}/{number}" for number in range(_OPERATORS_A_KIND) for kind in kinds)
    groups = {"training": (*training, *operators), "held-out": (*held_out,), "layers": (*layer_names(_LAYERS),)}
    return tuple(member for name in names for member in groups.get(name, (name,)))
