"""Metrics of cost models, and comparisons between models."""
