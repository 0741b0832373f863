"""Changes to log directories: a plan as a value, its execution with a journal, and undo."""
