"""Render and write a report as one HTML file that loads nothing and runs nothing but its own scripts.

Names, keys and messages come from the evidence, and may have been crafted to attack whoever opens the report:

1. Jinja2 escapes everything that a template prints. Invisible and bidirectional characters are spelt out before that (`_shown`).
2. Data for scripts is JSON in a `<script type="application/json">` without `<`, `>` and `&`, so that nothing in it can end the element.
3. A Content-Security-Policy allows the scripts and styles of this file by their hashes, and nothing else: no handlers in attributes,
   no requests, frames or forms. Trusted Types are required, so that no script can insert text into the document as HTML.

The file is written atomically, and never over one that is not a report of kseg: a nightly job uses the same name every time, but a mistyped
name must not destroy a file. Such a name is refused before the work, which may take hours, and again after it.
"""

import base64
import functools
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kseg.change.apply.disk import DISK
from kseg.change.apply.file_operations import remove_quietly
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.new_files import sync_directory, write_new_file
from kseg.segment.probe import Probe
from kseg.segment.terminal import visible

if TYPE_CHECKING:
    from jinja2 import Environment


_ASSETS = os.path.join(os.path.dirname(__file__), "assets")
_EXACT_IN_A_BROWSER = 1 << 53
ROWS_PRINTED = 40  # rows of a long table that appear on paper, with a note about the others


class ReportStep(NamedTuple):
    """A recommended step. command: ready to paste."""

    why: str
    command: str


def asset(name: str) -> str:
    """A file that is part of this package."""
    return read_small(os.path.join(_ASSETS, name)).decode()


def rendered(pictures: Mapping[str, object] | None, **values: object) -> bytes:
    """The HTML file. pictures: the data of the charts, None for a report without charts. values: the other variables of `page.html`."""
    style = asset("report.css")
    scripts = [asset("report.js")]
    if pictures is not None:
        scripts += [f"/*\nd3\n{asset('d3.LICENSE')}*/\n{asset('d3.min.js')}", asset("pictures.js")]
    template = _environment().get_template("page.html")
    text = template.render(
        policy=_policy(scripts, style),
        scripts=scripts,
        style=style,
        pictures=pictures,
        rows_printed=ROWS_PRINTED,
        **values,
    )
    return MARK + b"\n" + text.encode("utf-8", "backslashreplace")


def _policy(scripts: list[str], style: str) -> str:
    """The Content-Security-Policy of the file."""
    sources = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {sources}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@functools.cache
def _environment() -> "Environment":
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: asset(f"{name}.j2")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["data"] = _as_data
    made.filters["raw"] = _as_it_is
    return made


def _shown(value: object) -> object:
    """Text from the evidence with invisible characters and bytes that are not UTF-8 spelt out."""
    return visible(value) if type(value) is str else value  # Markup and numbers


def _as_it_is(text: str) -> object:
    """The text of a script or stylesheet, which must not be escaped."""
    from markupsafe import Markup

    return Markup(text)


def _as_data(values: object) -> object:
    """JSON for a `<script type="application/json">`. Integers that a browser would round become strings."""
    from markupsafe import Markup

    text = json.dumps(_for_browsers(values), ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _for_browsers(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _EXACT_IN_A_BROWSER:
        return str(value)
    if isinstance(value, str):
        return _shown(value)
    if isinstance(value, Mapping):
        return {_shown(str(name)): _for_browsers(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_browsers(each) for each in value]
    return value


MARK = b"<!doctype html><!-- a report of kseg -->"


def check_place(path: str) -> None:
    """Raises Refused if a report cannot be written there: another file is in the way, or the directory is missing."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"cannot write {path}: {folder} is not a directory")
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Refused(f"cannot write {path}: no permission to write into {folder}") from None
        return
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode) or not _is_report(path):
        raise Refused(f"{path} exists and is not a report of kseg; name another file")


def write_report(path: str, data: bytes) -> None:
    """Write the report and move it into place. Raises Refused, and leaves an existing file as it is."""
    check_place(path)
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)
    aside = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}.tmp")
    write_new_file(aside, data)
    try:
        DISK.rename(aside, os.path.join(folder, name))
        # the report is in place; if its directory cannot be synced, only a crash right now would lose it
        with suppress(Refused):
            sync_directory(folder)
    except OSError as error:
        remove_quietly(DISK, aside)
        raise Refused(f"cannot write {path}: {error.strerror}") from error


def _is_report(path: str) -> bool:
    try:
        with Probe(path) as file:
            return file.read(0, len(MARK)) == MARK
    except UnreadableInput:
        return False
