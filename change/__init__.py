"""Changes of log directories: the plan as a value, its execution with a journal, and the way back."""
