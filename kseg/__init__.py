"""kseg: the offline forensic and maintenance toolkit for Apache Kafka's on-disk logs.

As a library: `kseg.open(path)` (docs/library.md). The names are imported from `kseg.library` on first use, so that commands do not pay
for that import.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kseg.library import (
        Batch,
        Finding,
        KsegError,
        Logs,
        OutOfReach,
        OutOfResources,
        Partition,
        Record,
        Refused,
        Segment,
        UnreadableInput,
        UsageError,
    )
    from kseg.library import open_logs as open

__all__ = [
    "Batch",
    "Finding",
    "KsegError",
    "Logs",
    "OutOfReach",
    "OutOfResources",
    "Partition",
    "Record",
    "Refused",
    "Segment",
    "UnreadableInput",
    "UsageError",
    "open",
]


if not TYPE_CHECKING:  # a type checker would otherwise accept any misspelt name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'kseg' has no attribute {name!r}")
        import importlib

        library = importlib.import_module("kseg.library")
        found = globals()[name] = getattr(library, "open_logs" if name == "open" else name)
        return found
