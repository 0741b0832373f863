"""Records as Arrow has them: kernel columns become record batches. The only room of `segment` that knows pyarrow."""
