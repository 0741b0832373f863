"""The files beside a log: indexes, snapshots, checkpoints, metadata; decoders and encoders."""
