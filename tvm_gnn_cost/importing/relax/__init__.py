"""Converts ONNX graphs of primitive operators to Relax. Needs TVM 0.25 or newer."""
