"""The cluster's metadata on the disk of a node: found (`metadata_finder`), read (`metadata_log`), replayed (`metadata_replay`)
into one value (`metadata_image`).

`strays` determines what a broker does with a partition directory that is not in the metadata, `missing_replicas` what it does
with a replica in the metadata that has no directory.
"""
