"""One verification in a Spark session of this machine, for the race; prints times as JSON.

    python -m bench.spark_turn PATH

session_s: until there is a session whose Python workers have started. work_s: the first `verify` of the session. again_s: the second one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise

from kseg.cli.main import run
from kseg.cli.streams import complain
from kseg.spark import cluster_fanout
from kseg.spark.options import ClusterOptions

CORES = 2


def main() -> None:
    """The command line."""
    words = ["verify", "--quiet", *sys.argv[1:], "--spark"]
    master = f"local[{CORES}]"
    marks = [time.perf_counter()]
    cluster_fanout.ready(ClusterOptions(master=master, light=True), complain)
    marks.append(time.perf_counter())
    for _ in range(2):
        status = run([*words, "--master", master])
        marks.append(time.perf_counter())
        if status:
            sys.exit(status)
    session_s, work_s, again_s = (after - before for before, after in pairwise(marks))
    reported = json.dumps({"session_s": session_s, "work_s": work_s, "again_s": again_s})
    os.write(1, reported.encode() + b"\n")


if __name__ == "__main__":
    main()
