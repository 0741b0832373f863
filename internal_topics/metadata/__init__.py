"""The cluster's metadata as a node has it on disk: found (`finding`), read (`reading`), replayed (`replay`) into one value (`image`).

`strays` says what a broker would make of a partition directory that the metadata does not know, `missing_replicas` what of one that
the metadata knows and that is not there.
"""
