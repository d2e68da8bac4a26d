"""Losses, fitting and checkpoints."""
