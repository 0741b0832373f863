"""Render a report as one HTML file that loads nothing and runs nothing but its own scripts.

Names, keys and messages come from the evidence, and may have been crafted to attack whoever opens the report:

1. Jinja2 escapes everything that a template prints. Invisible and bidirectional characters are spelt out before that (`_shown`).
2. Data for scripts is JSON in a `<script type="application/json">` without `<`, `>` and `&`, so that nothing in it can end the element.
3. A Content-Security-Policy allows the scripts and styles of this file by their hashes, and nothing else: no handlers in attributes,
   no requests, frames or forms. Trusted Types are required, so that no script can insert text into the document as HTML.
"""

import base64
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kseg.cli.html.html_file import MARK
from kseg.segment.files import read_small
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
