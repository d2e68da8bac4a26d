"""Fitting models to measured programs, with Lightning."""
