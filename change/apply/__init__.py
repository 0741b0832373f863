"""The executor behind every change: lock, journal, staging, quarantine, undo."""
