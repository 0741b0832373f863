"""The commands by name: each is the function `command` of its own module, imported on demand."""

import importlib
from collections.abc import Callable
from types import ModuleType

COMMANDS = (
    "doctor",
    "dump",
    "verify",
    "diff",
    "lookup",
    "read",
    "list",
    "groups",
    "metadata",
    "what-if",
    "export",
    "transactions",
    "append",
    "recover",
    "compact",
    "retain",
    "undo",
)


def module_of(name: str) -> ModuleType:
    """The module of a command: `command` is the function, `EXAMPLES` its examples (purpose, arguments)."""
    return importlib.import_module(f"kseg.cli.commands.{name.replace('-', '_')}")


def function_of(name: str) -> Callable[..., int]:
    function: Callable[..., int] = module_of(name).command
    return function
