"""Records as Arrow record batches, built from kernel columns. Imports pyarrow."""
