"""Finding one message, or one offset, in a log: the answers of a broker without a broker."""

from kseg.inspection.lookup.lookup import lookup

__all__ = ["lookup"]
