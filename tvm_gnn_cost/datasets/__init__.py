"""Measured programs: their file formats, the graph store and splits."""
