"""Brings ONNX graphs of primitive operators to Relax; needs today's TVM."""
