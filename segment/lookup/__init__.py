"""Finding one message, or one offset, in a log: the answers of a broker without a broker."""

from kseg.segment.lookup.work import lookup

__all__ = ["lookup"]
