"""Prepares graphs for training: npz files flow in, prepared graphs flow out.

A prepared graph keeps the nodes near configurable ones and the different configurations, packed into a sixth of their
published size (TGraph, Maksimov et al. 2024, section 2.2).
"""
