"""Models that score the configurations of an XLA graph, one file each.

A standardised graph with some of its configurations flows in, as tensors; one score for each configuration flows out.
"""
