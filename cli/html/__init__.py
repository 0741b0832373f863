"""`--html FILE`: the result of a command as one self-contained HTML file, to read, sort, print and attach to an incident."""
