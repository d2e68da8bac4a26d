"""The networks and operators whose tasks are measured or tuned."""
