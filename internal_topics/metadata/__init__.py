"""The cluster's metadata as a node has it on disk: found (`metadata_finder`), read (`metadata_log`), replayed (`metadata_replay`) into one value (`metadata_image`).

`strays` tells what a broker does with a partition directory that is not in the metadata, `missing_replicas` what it does when one that
is in the metadata has no directory.
"""
