"""Networks that a user's own function returns, named ``package.module:function``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from typing import Any

import torch

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError


def call_function(source: str) -> Any:
    """What the function returns, the same at each call: torch's random numbers start from a fixed seed.

    Modules are looked for in the current directory first, as ``python -m`` does.

    Raises:
        InputError: there is no such module or function, it takes arguments, or it or the module raises an error.
    """
    module_name, _, function_name = source.partition(":")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"there is no module '{error.name}' for {source}, neither in {folder} nor installed"
            ) from error
        raise InputError(f"{source} needs the module '{error.name}', which is not installed") from error
    except Exception as error:
        raise _raised(f"module '{module_name}'", error) from error
    finally:
        sys.path.remove(folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"module '{module_name}' ({module.__file__}) has no function '{function_name}'")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"{source} must be a function that takes no arguments: {error}") from error
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return function()
        except Exception as error:
            raise _raised(source, error) from error


def _raised(what: str, error: Exception) -> InputError:
    """The sentence about an error of the user's own code; the place is where it was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = last_line(error)
    return InputError(f"{what} raises {type(error).__name__} ({said}) at line {place.lineno} of {place.filename}")
