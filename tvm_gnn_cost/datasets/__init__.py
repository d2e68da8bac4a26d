"""Measured programs: collecting, storing, reading and splitting them."""
