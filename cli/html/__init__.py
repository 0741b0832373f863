"""`--html FILE`: the answer of a command as one file for a browser, to be read, sorted, printed and attached to an incident."""
