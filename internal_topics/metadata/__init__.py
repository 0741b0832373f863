"""The cluster's metadata as a node has it on disk: found (`metadata_finder`), read (`metadata_log`), replayed (`metadata_replay`) into one value (`metadata_image`).

`strays` says what a broker would make of a partition directory that the metadata does not know, `missing_replicas` what of one that
the metadata knows and that is not there.
"""
