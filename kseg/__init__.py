"""kseg: the offline forensic and maintenance toolkit for Apache Kafka's on-disk logs."""

__version__ = "0.1.0"
