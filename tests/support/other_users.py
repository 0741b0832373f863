"""Commands of a user without root's rights. What they import has to be there before: that user may not be able to read it."""

from __future__ import annotations

import importlib
import os
import pkgutil

import kseg
from kseg.cli.main import run

NOBODY = 65534


def import_everything() -> None:
    """Of kseg, and of the standard library what its commands need."""
    for module in pkgutil.walk_packages(kseg.__path__, "kseg."):
        if not module.name.startswith(("kseg.spark", "kseg.__main__")):
            importlib.import_module(module.name)
    importlib.import_module("multiprocessing")


def run_as_nobody(words: list[str]) -> int:
    """The status of a command in a child that has given up root's rights."""
    child = os.fork()
    if not child:
        status = 99
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            status = run(words)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
