"""Choose the decoder for the requested formats, and find the schemas it needs.

The schemas are searched near the targets: in their log dirs, then in the directories beside those, as a broker with several log
dirs has `_schemas-0` in one of them.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from kseg.internal_topics.registry.payload_decoder import (
    KIND_OF_FORMAT,
    NEEDS_SCHEMAS,
    Format,
    PayloadDecoder,
    missing_library,
)
from kseg.internal_topics.registry.schema_files import read_schemas
from kseg.internal_topics.registry.schema_store import SchemaStore
from kseg.internal_topics.registry.schema_topic import SCHEMAS_DIRECTORY, read_schema_topic
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.partition.targets import Target, log_dir_of
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_MAX_NEIGHBOURS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderChoice:
    """key_format, value_format: of `Format`. schemas: their location, None to search for them. paths: as given by the user.
    option: the option that specifies schemas, for the error message when none are found."""

    key_format: Format
    value_format: Format
    schemas: str | None
    paths: Sequence[str]
    option: str

    def decoder(self, targets: Sequence[Target], say: Callable[[str], None]) -> PayloadDecoder:
        """The decoder for the logs of some targets. say: receives messages about missing schemas.

        Raises UsageError if there are no schemas, or no library for them, UnreadableInput.
        """
        for form in (self.key_format, self.value_format):
            missing = missing_library(KIND_OF_FORMAT[form]) if form in KIND_OF_FORMAT else None
            if missing is not None:
                raise UsageError(missing)
        store = None
        if self.key_format in NEEDS_SCHEMAS or self.value_format in NEEDS_SCHEMAS:
            store, problems = self._store(targets)
            for problem in problems:
                say(problem)
        return PayloadDecoder(self.key_format, self.value_format, store)

    def _store(self, targets: Sequence[Target]) -> tuple[SchemaStore, tuple[str, ...]]:
        if self.schemas is not None:
            return read_schemas(self.schemas)
        tried: list[str] = []
        for log_dir in _places(targets):
            directory = os.path.join(log_dir, SCHEMAS_DIRECTORY)
            if not places.isdir(directory):
                continue
            try:
                return read_schema_topic(directory)
            except UnreadableInput as error:
                tried.append(str(error))
        why = f" ({tried[0]})" if tried else ""
        raise UsageError(
            f"no _schemas topic is in or beside the log dirs of {', '.join(self.paths)}{why}; {self.option} names one, or a "
            "folder of files such as 17.avsc"
        )


def _places(targets: Sequence[Target]) -> Iterator[str]:
    """The log dirs of the targets, then the directories beside them, each once."""
    own = list(dict.fromkeys(map(log_dir_of, targets)))
    yield from own
    seen = {places.realpath(path) for path in own}
    for parent in dict.fromkeys(os.path.dirname(places.abspath(path)) for path in own):
        try:
            names = sorted(places.listdir(parent))[:_MAX_NEIGHBOURS]
        except OSError:
            continue
        for name in names:
            path = os.path.join(parent, name)
            if places.realpath(path) not in seen:
                yield path
