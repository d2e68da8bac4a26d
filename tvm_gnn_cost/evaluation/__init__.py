"""Metrics, comparisons and the HTML report."""
