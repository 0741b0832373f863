"""Names that file systems, editors, rsync, NFS and desktops leave in data directories and partitions."""

from __future__ import annotations

STRANGE_FILES = (
    ".DS_Store",
    ".nfs00000000012a4b5c00000001",
    "core.1234",
    "nohup.out",
    ".fuse_hidden0000a1",
    "hs_err_pid12.log",
    "kafka.log",
    "orders-0.tar.gz",
    "00000000000000000000.log.gz",
    ".00000000000000000000.log.X7f3Qa",
    "00000000000000000000.log~",
    ".00000000000000000000.log.swp",
    "#00000000000000000000.log#",
    "00000000000000000000.log.bak",
    "00000000000000000000.log.1",
    "00000000000000000000.log.orig",
    "dead.letter",
    "0.log",
    "00000000000000000000.LOG",
    "meta.properties.bak",
    "partition.metadata~",
    "recovery-point-offset-checkpoint.tmp",
    "leader-epoch-checkpoint.tmp",
    "-1.log",
    "00000000000000000000 (copy).log",
)
STRANGE_DIRECTORIES = (
    "lost+found",
    ".snapshot",
    ".Trash-0",
    "old",
    "backup-2024",
    "metro-none-0.bak",
    "metro-none-0_old",
    "METRO-NONE-0",
    "tmp",
    "a-b",
)
