"""`lookup`: find one message or one offset in a log, as a broker would answer."""

from kseg.inspection.lookup.lookup import lookup

__all__ = ["lookup"]
