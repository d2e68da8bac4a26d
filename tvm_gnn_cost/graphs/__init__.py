"""Programs as graphs: arrays, node features, node type vectors and batches."""
