"""Expands operators of the domain ``com.microsoft``, which ONNX Runtime's optimizer and quantizer write."""

from tvm_gnn_cost.importing.microsoft import attention, fused, quantized
from tvm_gnn_cost.importing.simplify import Expansion

#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {**attention.EXPANSIONS, **fused.EXPANSIONS, **quantized.EXPANSIONS}
