"""Import `dataclasses` without `inspect`, before any other module of the program imports it.

`dataclasses` uses `inspect` only to write the docstring of a class that has none, which `segment/values` prevents. With ast, dis and
tokenize, which it imports, `inspect` takes a tenth of the start-up time of a command. So `dataclasses` is given a stand-in, which imports
the real module when somebody does use it (from Python 3.12 on `dataclasses` itself does). All other modules import the real one.
"""

import importlib
import sys
from types import ModuleType


def import_dataclasses() -> None:
    """Do nothing if somebody has imported either module before."""
    if "inspect" in sys.modules or "dataclasses" in sys.modules:
        return
    stand_in = ModuleType("inspect")
    stand_in.__getattr__ = _real_attribute  # type: ignore[method-assign]  # PEP 562: a function of the module
    sys.modules["inspect"] = stand_in
    try:
        importlib.import_module("dataclasses")
    finally:
        if sys.modules.get("inspect") is stand_in:
            del sys.modules["inspect"]


def _real_attribute(name: str) -> object:
    return getattr(importlib.import_module("inspect"), name)


import_dataclasses()
