"""Networks as users bring them: read, their sizes fixed, and brought to Relax."""
