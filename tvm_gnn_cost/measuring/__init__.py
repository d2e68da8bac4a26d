"""This machine: its description, exclusive measurements, and the cards of measurements."""
