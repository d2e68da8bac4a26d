"""Features of the processor that a program is built for.

A measure record only has the target's text: LLVM's name of the processor, and the number of cores. The properties of
processors in this table are from the vendors' manuals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import numpy as np

from tvm_gnn_cost.files import parse_json
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import columns

_KIB = 1024


@dataclass(frozen=True)
class Processor:
    """A processor. Unknown fields are 0. All fields but the name are the columns of the group ``target``.

    Attributes:
        name: LLVM's name; empty if the target has none.
        cores: Number of cores that a program may use.
        vector_bytes: Length of a vector register in bytes.
        flops_per_cycle: Peak float32 operations per core and cycle.
        cache_1_bytes: Size of the L1 data cache.
        cache_2_bytes: Size of the L2 cache per core.
    """

    name: str = ""
    cores: int = 0
    vector_bytes: int = 0
    flops_per_cycle: int = 0
    cache_1_bytes: int = 0
    cache_2_bytes: int = 0


#: LLVM's names of processors -> vector register in bytes, float32 operations per cycle, L1 and L2 cache in KiB.
_KNOWN: dict[tuple[str, ...], tuple[int, int, int, int]] = {
    ("sandybridge", "ivybridge", "core-avx-i"): (32, 16, 32, 256),
    ("haswell", "core-avx2", "broadwell", "skylake"): (32, 32, 32, 256),
    ("skylake-avx512", "cascadelake", "cooperlake"): (64, 64, 32, 1024),
    ("icelake-client", "rocketlake"): (64, 32, 48, 512),
    ("tigerlake",): (64, 32, 48, 1280),
    ("icelake-server",): (64, 64, 48, 1280),
    ("sapphirerapids", "emeraldrapids", "graniterapids"): (64, 64, 48, 2048),
    ("alderlake", "raptorlake"): (32, 32, 48, 1280),
    ("znver1",): (32, 16, 32, 512),
    ("znver2", "znver3"): (32, 32, 32, 512),
    ("znver4",): (64, 32, 32, 1024),
    ("znver5",): (64, 64, 48, 1024),
    ("neoverse-n1",): (16, 16, 64, 1024),
    ("neoverse-v1",): (32, 32, 64, 1024),
    ("cortex-a72",): (16, 8, 32, 512),
    ("cortex-a76",): (16, 16, 64, 256),
    ("apple-m1",): (16, 32, 128, 3072),
}
_PROCESSORS = {
    name: Processor(name, 0, vector, flops, first * _KIB, second * _KIB)
    for names, (vector, flops, first, second) in _KNOWN.items()
    for name in names
}


def processor_of(target: str) -> Processor:
    """The processor of a target.

    Args:
        target: The text of a TVM target, as JSON or as options.

    >>> processor_of("llvm -mcpu=znver4 -num-cores=4").cache_2_bytes
    1048576
    >>> processor_of('{"kind": "llvm", "mcpu": "other", "num-cores": 2}')
    Processor(name='other', cores=2, vector_bytes=0, flops_per_cycle=0, cache_1_bytes=0, cache_2_bytes=0)
    """
    try:
        described = parse_json(target)
    except ValueError:
        described = target
    # Tasks of auto_scheduler encode the options as a JSON string.
    options = described if isinstance(described, dict) else dict(re.findall(r"-([\w-]+)=(\S+)", str(described)))
    name, cores = (str(options.get(option) or "") for option in ("mcpu", "num-cores"))
    return replace(_PROCESSORS.get(name, Processor(name)), cores=int(cores) if cores.isdecimal() else 0)


def with_processors(graphs: ProgramGraphs, targets: Sequence[str]) -> ProgramGraphs:
    """Sets the features of the target's processor at every node.

    Writes to ``graphs.x`` in place if it is writable; otherwise copies it.

    Args:
        graphs: G graphs.
        targets: The text of each graph's target.
    """
    if len(targets) != len(graphs):
        raise ValueError(f"{len(graphs)} graphs and {len(targets)} targets: one each is needed")
    values = graphs.x if graphs.x.flags.writeable else graphs.x.copy()
    used = columns(["target"])
    facts = np.array([_facts(target) for target in targets], np.float32).reshape(-1, len(used))
    values[:, used[0] : used[-1] + 1] = np.repeat(np.log2(1 + facts), graphs.node_counts, axis=0)
    return replace(graphs, x=values)


@lru_cache(maxsize=256)
def _facts(target: str) -> tuple[int, ...]:
    """The columns of the group ``target`` before the logarithm; cached, because populations share targets."""
    return astuple(processor_of(target))[1:]
