"""Find one message or one offset in a log: a broker's answers without a broker."""

from kseg.inspection.lookup.lookup import lookup

__all__ = ["lookup"]
