"""The commands by name: each is the function `command` of its own module, imported on demand."""

import importlib
from collections.abc import Callable
from itertools import chain
from types import ModuleType

BY_PURPOSE = {
    "Look at a broker's data; nothing is written": ("doctor", "verify", "list", "what-if"),
    "Find and read messages": ("lookup", "read", "dump", "export", "diff"),
    "Read Kafka's own topics": ("groups", "transactions", "metadata"),
    "Change files: the plan first, --apply carries it out": (
        "recover",
        "compact",
        "retain",
        "append",
        "undo",
    ),
}
COMMANDS = (*chain.from_iterable(BY_PURPOSE.values()),)


def module_of(name: str) -> ModuleType:
    """The module of a command: `command` is the function, `EXAMPLES` its examples (purpose, arguments)."""
    return importlib.import_module(f"kseg.cli.commands.{name.replace('-', '_')}")


def function_of(name: str) -> Callable[..., int]:
    function: Callable[..., int] = module_of(name).command
    return function
