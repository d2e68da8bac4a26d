"""What a program graph is, and how one is made."""
