"""Which cluster to use, as plain values from the command line.

Nothing here imports pyspark, so that the options of a command can be read without it; `session` turns them into a
Spark session.
"""

from kseg.segment.values import dataclass

LOCAL_MASTER = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """master: Spark's URL of the cluster. conf: settings of Spark, as (name, value); later ones take precedence. py_files, archives,
    jars: files for the executors, as for spark-submit. packages: Maven coordinates of further jars. light: Spark only distributes our own
    work, so its JVM need not optimise its code."""

    master: str = LOCAL_MASTER
    conf: tuple[tuple[str, str], ...] = ()
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    light: bool = False
