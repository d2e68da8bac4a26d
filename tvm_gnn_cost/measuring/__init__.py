"""Building and running programs on this machine."""
