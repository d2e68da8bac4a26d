"""Models that score the configurations of an XLA graph, one file each."""
