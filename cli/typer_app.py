"""The typer app: help, completion, suggestions, and every command line that `option_schema.quick_read` does not parse.

The signatures of the commands (see `option_schema`) are converted into functions that typer understands. Every value arrives as text
and is converted by `option_schema.bind`, exactly as on the fast path. Only the commands that are needed are imported: one for
`kseg dump …`, all for `kseg --help` and completion.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kseg.cli.help_page import HELP, OPTIONS, help_lines, help_text, overview_lines, show
from kseg.cli.option_schema import Argument, Option, Parameter, Raw, bind, parameters, spelled_out
from kseg.cli.registry import COMMANDS, function_of
from kseg.cli.streams import not_written
from kseg.segment.errors import UsageError

SETTINGS = {"help_option_names": ["-h", "--help"]}


def run(words: Sequence[str], version: Callable[[], int]) -> int:
    """Parse with typer and run the command; returns the exit status. Raises UsageError for a wrong command line, Refused for a help page
    that cannot be written."""
    named = words[0] if words else ""
    names = [named] if named in COMMANDS else list(COMMANDS)
    app = build(names, version)
    is_help = not {"--help", "-h"}.isdisjoint(words)
    try:
        result = app(args=_spelled_out(words), prog_name="kseg", standalone_mode=False)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not is_help:
            raise
        raise not_written(error) from None
    except SystemExit:  # rich ends the program with status 1 when the reader has gone
        if not is_help:
            raise
        return 0
    except Exception as error:  # noqa: BLE001  (typer's exceptions have no public base class)
        raise _as_usage_error(error, named if named in COMMANDS else "") from None
    return result if isinstance(result, int) else 0


def _spelled_out(words: Sequence[str]) -> list[str]:
    if not words or words[0] not in COMMANDS:
        return list(words)
    return [words[0], *spelled_out(parameters(function_of(words[0])), words[1:])]


def build(names: Sequence[str], version: Callable[[], int]) -> typer.Typer:
    app = typer.Typer(name="kseg", cls=_Program, pretty_exceptions_enable=False, context_settings=SETTINGS)

    def root(
        version_: Annotated[
            bool,
            typer.Option("--version", help=OPTIONS["--version"], is_eager=True),
        ] = False,
    ) -> None:
        if version_:
            raise typer.Exit(version())

    app.callback(help=HELP)(root)
    for name in names:
        app.command(name, cls=_Command, help=help_text(name))(_for_typer(function_of(name)))
    return app


class _Program(TyperGroup):
    """kseg with its own help page (`cli.help_page`)."""

    def format_help(self, ctx: object, formatter: object) -> None:
        show(overview_lines)


class _Command(TyperCommand):
    """A command with its own help page."""

    def format_help(self, ctx: object, formatter: object) -> None:
        show(partial(help_lines, self.name or ""))


def _for_typer(command: Callable[..., int]) -> Callable[..., int]:
    """A function with typer's annotations that binds its text arguments and calls the command."""
    known = parameters(command)

    def adapter(**raw: Raw) -> int:
        return command(**bind(known, raw))

    signature = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=_annotation(each),
            default=inspect.Parameter.empty if each.required else _unset(each),
        )
        for each in known
    ]
    adapter.__signature__ = inspect.Signature(signature, return_annotation=int)  # type: ignore[attr-defined]
    adapter.__annotations__ = {each.name: each.annotation for each in signature} | {"return": int}
    adapter.__doc__ = command.__doc__
    return adapter


def _unset(parameter: Parameter) -> Any:
    """The default as typer's text, so that its help shows it and `bind` converts it back."""
    if parameter.shape == "one":
        return None if parameter.default is None else str(parameter.default)
    return {"flag": False, "pair": None, "many": []}[parameter.shape]


def _annotation(parameter: Parameter) -> Any:
    spec = parameter.spec
    kind = {"flag": bool, "pair": bool | None, "one": str | None, "many": list[str]}[parameter.shape]
    if isinstance(spec, Argument):
        return Annotated[kind, typer.Argument(metavar=spec.metavar, help=spec.help, show_default=False)]
    assert isinstance(spec, Option)
    if parameter.shape in ("flag", "pair"):
        made = typer.Option(
            *filter(None, (parameter.names, spec.short)),
            help=spec.help,
            metavar="",
            rich_help_panel=spec.panel,
            show_default=False,
        )
    else:
        made = typer.Option(
            parameter.names,
            help=spec.help,
            metavar=spec.metavar,
            rich_help_panel=spec.panel,
            autocompletion=_completer(spec.choices) if spec.choices else None,
        )
    return Annotated[kind, made]


def _completer(choices: Sequence[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _as_usage_error(error: Exception, command: str) -> Exception:
    """Convert typer's error about a wrong command line into a UsageError; any other exception is returned unchanged."""
    say = getattr(error, "format_message", None)
    if say is None:
        return error
    where = f"kseg {command}" if command else "kseg"
    sentence = " ".join(str(say()).split()).rstrip(".")
    return UsageError(f"{sentence} (see {where} --help)")
