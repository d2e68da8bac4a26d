"""Networks and operators whose tasks are measured or tuned, in plain ``torch.nn``."""
