"""`export`: write the records of logs to files for other tools. pyarrow is imported by the writers, not here."""
