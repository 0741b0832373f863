"""Log compaction and retention as a broker would do them, offline."""
