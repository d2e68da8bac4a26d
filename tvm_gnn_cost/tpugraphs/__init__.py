"""Ranks layout and tile configurations of XLA graphs in the TpuGraphs format (Phothilimthana et al. 2023); no TVM."""
