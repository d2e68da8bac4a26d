"""Trains models on prepared graphs and ranks the configurations of npz files with them.

Prepared graphs flow in and checkpoints flow out of training; checkpoints and npz files flow in and scores, metrics or
the competition's table flow out of ranking and evaluation.
"""
