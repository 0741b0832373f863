"""What of a verification others can do beforehand, in any order and on any machine: the bytes of large logs.

The pass over a partition goes from batch to batch, since a producer's state, an epoch, an index entry hang on what came
before. Checksums do not, nor does whether records can be decoded; and these are what takes time. So parts of the logs are
looked at first (`claim`), and the pass believes what was found (`segment.scanning.trust`): it reads the headers, and only of
batches that somebody stumbled over the rest.
"""

import os
from contextlib import suppress

from kseg.recovery.verify.options import VerifyOptions
from kseg.segment.files import MappedFile
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.pieces import Part, pieces_between
from kseg.segment.scanning.trust import Claim, claim_of
from kseg.segment.targets import FileTarget, LogDirTarget, PartitionTarget


def parts(target: FileTarget | PartitionTarget | LogDirTarget, part_bytes: int) -> list[Part]:
    """The logs of a partition (or one log alone) in parts; none of what is no log or cannot be read."""
    match target:
        case PartitionTarget():
            segments = list_partition(target.path).segments
            return [
                part
                for segment in segments
                for part in pieces_between(segment.log.path, segment.log.size_bytes, part_bytes)
            ]
        case FileTarget() if parse_file_name(os.path.basename(target.path)).role is Role.LOG:
            with suppress(OSError):
                return pieces_between(target.path, os.stat(target.path).st_size, part_bytes)
    return []


def claim(part: Part, options: VerifyOptions) -> Claim:
    """What is sound in a part. Raises UnreadableInput."""
    base_offset = parse_file_name(os.path.basename(part.path)).base_offset or 0
    with MappedFile(part.path, options.drop_cache) as file:
        return claim_of(file, base_offset, part.start, part.stop, with_records=options.level == "deep")
