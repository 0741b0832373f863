"""A run over several directories: locks, attempts, and the log directory's own files at the end."""
