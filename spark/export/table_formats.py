"""Requirements of Delta and Iceberg tables: jars for the version of Spark, and settings.

Each release of the jars is built for one version of Spark (3.5, 4.0, 4.1, …). With another version they usually load, and
fail where Spark's internals have changed. If the jars are missing, the known ones are suggested; whether they fit shows only
when they are used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from zlib import crc32

from kseg.inspection.export.options import Form
from kseg.inspection.export.output_folder import Mode
from kseg.segment.errors import UsageError
from kseg.segment.values import dataclass
from kseg.spark.options import ClusterOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Needs:
    """The requirements of a format. name: for messages. probe: a class in its jars. at_start: settings with which a session must be
    created. artifact: the Maven coordinates, with {spark} for the version of Spark. versions: of the jars, by the version of Spark that
    they are built for. log: the subdirectory by which an existing table is recognised."""

    name: str
    log: str
    probe: str
    at_start: Mapping[str, str]
    artifact: str
    versions: Mapping[str, str]

    def coordinates(self, spark: str) -> str:
        return self.artifact.format(spark=spark, version=self.versions[spark])

    def advice(self, spark_version: str) -> str:
        """The jars to use with the installed version of Spark."""
        wanted = ".".join(spark_version.split(".")[:2])
        if wanted in self.versions:
            return f"--packages {self.coordinates(wanted)}"
        newest = max(self.versions, key=lambda spark: [int(part) for part in spark.split(".")])
        return (
            f"--packages {self.coordinates(newest)} is the newest known to kseg, made for Spark {newest} "
            f"(Spark {spark_version} is installed)"
        )


NEEDS: Final[Mapping[Form, Needs]] = {
    Form.DELTA: Needs(
        name="Delta",
        log="_delta_log",
        probe="io.delta.sql.DeltaSparkSessionExtension",
        at_start={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        artifact="io.delta:delta-spark_{spark}_2.13:{version}",
        versions={"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"},
    ),
    Form.ICEBERG: Needs(
        name="Iceberg",
        log="metadata",
        probe="org.apache.iceberg.spark.source.IcebergSource",
        at_start={},
        artifact="org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}",
        versions={"4.0": "1.12.0", "4.1": "1.12.0"},
    ),
}
# what Java throws when a class was compiled against another version of a dependency
_LINKAGE: Final = (
    "NoSuchMethodError",
    "NoSuchFieldError",
    "NoClassDefFoundError",
    "AbstractMethodError",
    "IncompatibleClassChangeError",
    "IllegalAccessError",
    "VerifyError",
)


def prepared(cluster: ClusterOptions, form: Form) -> ClusterOptions:
    """The cluster with the settings that a table format needs; settings of the user come last and take precedence."""
    needs = NEEDS.get(form)
    return cluster if needs is None else replace(cluster, conf=(*needs.at_start.items(), *cluster.conf))


def settings(form: Form, url: str) -> dict[str, str]:
    """Session settings for writing the table at `url`: for Iceberg, a catalog of the tables beside it."""
    if form is not Form.ICEBERG:
        return {}
    above, _ = _split(url)
    name = f"spark.sql.catalog.{_catalog(above)}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": above,
    }


def save_iceberg(frame: "DataFrame", url: str, mode: Mode, partition_by: Sequence[str], codec: str) -> None:
    """Write an Iceberg table at `url`, which can then also be read by its path.

    It is written by name because Spark's older writer, which takes a path, does not create a missing table, but reports success.
    """
    from pyspark.sql.functions import col

    above, name = _split(url)
    table = f"{_catalog(above)}.`{name.replace('`', '``')}`"
    is_there = mode is not Mode.ERROR_IF_EXISTS and frame.sparkSession.catalog.tableExists(table)
    if is_there and mode is Mode.IGNORE:
        return
    writer = frame.writeTo(table)
    if is_there and mode is Mode.APPEND:
        writer.append()
        return
    writer = writer.using("iceberg").tableProperty("write.parquet.compression-codec", codec)
    if partition_by:
        writer = writer.partitionedBy(*map(col, partition_by))
    if mode is Mode.OVERWRITE:
        writer.createOrReplace()
    else:
        writer.create()


def _split(url: str) -> tuple[str, str]:
    above, _, name = url.rstrip("/").rpartition("/")
    return above, name


def _catalog(above: str) -> str:
    """The name of the catalog of a directory: its own, because a session caches a catalog after its first use."""
    return f"kseg_{crc32(above.encode()):08x}"


def check_jars(session: "SparkSession", form: Form) -> None:
    """Raises UsageError, which names the jars, if they are missing."""
    needs = NEEDS.get(form)
    if needs is None:
        return
    jvm = session.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(needs.probe)
    except Exception as error:  # Py4J's; whatever the reason, the class cannot be loaded
        raise UsageError(
            f"--to {form} needs the {needs.name} jars of Spark {session.version}, from --jars or --packages: "
            f"{needs.advice(session.version)}"
        ) from error


def misfit(error: Exception, form: Form, spark_version: str) -> UsageError | None:
    """The error about jars that were built for another version of Spark; None if that is not the cause."""
    needs = NEEDS.get(form)
    java = getattr(error, "java_exception", None)
    if needs is None or java is None:
        return None
    while java is not None:
        kind = java.getClass().getSimpleName()
        if kind in _LINKAGE:
            return UsageError(
                f"the {needs.name} jars do not fit Spark {spark_version} ({kind}: {java.getMessage()}): "
                f"{needs.advice(spark_version)}"
            )
        java = java.getCause()
    return None
