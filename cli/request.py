"""What a run was asked to work on: the next command that is advised is about the same."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.spark.options import ClusterOptions


@dataclass(frozen=True, slots=True)
class Request:
    """What a run was asked to work on, and where: the next command is about the same. also: further options that it takes with it,
    as far as it has them, by name."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    partition: int | None = None
    cluster: "ClusterOptions | None" = None
    also: Mapping[str, object] = field(default_factory=dict)
