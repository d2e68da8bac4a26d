"""The work that users ask for: collect, extract, train, evaluate and tune, with either scheduler."""
