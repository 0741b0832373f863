"""The room `segment/sidecar`: the files beside a log: indexes, snapshots, checkpoints, metadata; readers and writers."""
