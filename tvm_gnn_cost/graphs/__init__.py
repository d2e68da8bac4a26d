"""Programs as graphs: arrays, node values, node type vectors and batches."""
