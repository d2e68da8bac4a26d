"""The cost models that TVM calls, and tuning a network with them."""
