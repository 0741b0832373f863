"""Make the files that the benchmarks race over, with the real Kafka's own classes: `python -m bench.corpus [DIRECTORY]`.

Existing files are kept, so an interrupted run continues where it stopped. In DIRECTORY (default bench/corpus, about 7 GB):

    plain-100, gzip-100, snappy-100, lz4-100, zstd-100  the same 4.4 million records (100-byte JSON values, 13-byte
                                                        keys), 100 a batch: 512 MiB when plain, with indexes
    plain-1 … zstd-1                                    one record a batch: 512 MiB when plain
    big                                                 one plain file above 2 GiB, which Kafka's own tools refuse
    many                                                a log dir after a clean shutdown: 200 partitions, two small
                                                        segments each, every side file

Record n has offset n and time 1700000000000 + n ms in all of them.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from tests.kafka import jars

MIB = 1 << 20
DEFAULT_DIRECTORY = Path(__file__).resolve().parent / "corpus"


def make(directory: Path, segment_bytes: int, big_bytes: int, partitions: int) -> None:
    """Create the missing parts of a corpus of the given sizes. Raises CalledProcessError when Java fails."""
    directory.mkdir(parents=True, exist_ok=True)
    sizes = (str(directory.resolve()), str(segment_bytes), str(big_bytes), str(partitions))
    subprocess.run(jars.java_command("kseg.oracle.Corpus", *sizes), env=jars.java_environment(), check=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.corpus", description="Make the benchmark corpora.")
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--segment-mib", type=int, default=512, help="size of a plain segment")
    parser.add_argument("--big-mib", type=int, default=2112, help="size of the big file")
    parser.add_argument("--partitions", type=int, default=200, help="partitions of the log dir of many")
    options = parser.parse_args()
    make(options.directory, options.segment_mib * MIB, options.big_mib * MIB, options.partitions)


if __name__ == "__main__":
    main()
