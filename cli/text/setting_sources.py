"""The text about the sources of a plan's settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kseg.cli.text.amounts import duration_words, size_words
from kseg.segment.partition.topic_settings import Source
from kseg.segment.terminal import visible


def settings_words(values: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """The line that names each setting with its source; nothing for a run that read no settings. names: the settings to mention."""
    settings = values.get("settings") or {}
    sources = [
        f"{name} {visible(_amount(name, settings[name]['value']))} ({Source(settings[name]['source']).words})"
        for name in names
        if name in settings
    ]
    if sources:
        yield f"  by {', '.join(sources)}"


def _amount(name: str, value: object) -> str:
    """Durations and sizes in readable form; -1 and anything that is not a number unchanged."""
    text = str(value)
    if not text.isdigit():
        return text
    if name.endswith(".ms"):
        return duration_words(int(text))
    return size_words(int(text)) if name.endswith(".bytes") else text
