"""`export`: the records of logs as files that other tools read. pyarrow is imported by whoever writes, not by this."""
