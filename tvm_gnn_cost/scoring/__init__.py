"""Scoring: trained models in files, their scores of program graphs, and what they learn in a search."""
