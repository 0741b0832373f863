"""The process that Spark forks its Python workers from, with what the tasks of kseg import.

    python -m tests.spark.worker_daemon pyspark.worker      as `pyspark.daemon`, for the setting spark.python.daemon.module

A worker imports pyspark.worker and kseg after the fork, which takes most of a second of processor time. Tests that kill tasks or let them
fail start hundreds of workers. In every other respect the workers are the same.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
from contextlib import suppress

import kseg

# a process that forks has no other thread; this one would be started by the import of Arrow
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
_NOT_IN_TASKS = ("kseg.cli", "kseg.__main__")


def main() -> None:
    from pyspark.daemon import manager

    importlib.import_module("pyspark.worker")
    for module in pkgutil.walk_packages(kseg.__path__, "kseg."):
        if not module.name.startswith(_NOT_IN_TASKS):
            # some need what is not installed, and so do their tasks
            with suppress(ImportError):
                importlib.import_module(module.name)
    # otherwise each worker would traverse and copy these objects
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
