"""Names that anybody may have given, for libraries that read marks in a text.

HTML is Jinja's to escape, and the console of the command line reads no marks.
"""

from __future__ import annotations


def no_math(text: str) -> str:
    r"""A text that Matplotlib draws as it is: between two dollars it would read mathematics, and fail at what is none.

    >>> no_math("from $1 to $2")
    'from \\$1 to \\$2'
    """
    return text.replace("$", r"\$")
