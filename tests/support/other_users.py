"""Run commands as a user without root's rights. That user may not be able to read kseg's modules, so they are imported first."""

from __future__ import annotations

import importlib
import os
import pkgutil

import kseg
from kseg.cli.main import run

NOBODY = 65534


def import_everything() -> None:
    """Import all of kseg, and the modules of the standard library that its commands need."""
    for module in pkgutil.walk_packages(kseg.__path__, "kseg."):
        if not module.name.startswith(("kseg.spark", "kseg.__main__")):
            importlib.import_module(module.name)
    importlib.import_module("multiprocessing")


def run_as_nobody(words: list[str]) -> int:
    """The exit status of a command in a child process that has dropped root's rights."""
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
