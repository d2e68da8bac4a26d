"""Losses, training, checkpoints, and the model that learns during a search."""
