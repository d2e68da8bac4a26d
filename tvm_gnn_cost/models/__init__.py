"""Cost models: a batch of program graphs in, scores out."""
