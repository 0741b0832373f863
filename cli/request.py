"""The paths and options of a run that the suggested next command repeats."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.spark.options import ClusterOptions


@dataclass(frozen=True, slots=True)
class Request:
    """The paths of a run, and where it runs. also: further options by name, which the next command gets if it has them. is_verbose: whether
    each of many similar cases gets a step of its own."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    partition: int | None = None
    cluster: "ClusterOptions | None" = None
    also: Mapping[str, object] = field(default_factory=dict)
    is_verbose: bool = False
