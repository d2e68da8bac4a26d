from tests.tpugraphs.trained import example, one_thread

__all__ = ["example", "one_thread"]
