"""Writes the operators that ONNX Runtime's optimizer and quantizer put into files, of the domain ``com.microsoft``."""

from tvm_gnn_cost.importing.microsoft import attention, fused, quantized
from tvm_gnn_cost.importing.simplify import Expansion

#: How each operator is written.
EXPANSIONS: dict[str, Expansion] = {**attention.EXPANSIONS, **fused.EXPANSIONS, **quantized.EXPANSIONS}
