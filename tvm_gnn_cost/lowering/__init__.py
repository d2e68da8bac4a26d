"""Lowers a Relax module for tuning: layouts, packed weights, Winograd, and the design space of a task."""
