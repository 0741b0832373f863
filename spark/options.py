"""Which cluster to use, as plain values from the command line.

Nothing here imports pyspark, so that the options of a command can be read without it; `session` turns them into a
Spark session.
"""

from kseg.segment.values import dataclass

LOCAL_MASTER = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """master: Spark's URL of the cluster. conf: settings of Spark, as (name, value), later ones win. py_files, archives,
    jars: files for the executors, as spark-submit takes them. packages: Maven coordinates of further jars. light: Spark only carries our
    own work to and fro, so its JVM need not be made fast at length."""

    master: str = LOCAL_MASTER
    conf: tuple[tuple[str, str], ...] = ()
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    light: bool = False
