"""What a bundle is made of: an SBOM (CycloneDX), and the licences of all of it.

Beside the packages that pip knows there are libraries linked into the interpreter and into packages: they are asked for their versions, and
what a wheel says about itself (`*.dist-info/sboms/`) is taken over. A file of machine code that belongs to none of the parts named ends the
release.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from releasing.bundle import PROGRAM, elf_files
from releasing.commands import run
from releasing.interpreter import ARTIFACT, VERSION


class Linked(NamedTuple):
    """A library that is linked into another. asking: a program for the bundle's Python that prints its version."""

    name: str
    licence: str
    asking: str


# by the package of Python's, or the interpreter, that they are linked into
LINKED = {
    "cpython": (
        Linked("OpenSSL", "Apache-2.0", "import ssl; print(ssl.OPENSSL_VERSION.split()[1])"),
        Linked("expat", "MIT", "import pyexpat; print(pyexpat.EXPAT_VERSION.removeprefix('expat_'))"),
        Linked("libmpdec", "BSD-2-Clause", "import decimal; print(decimal.__libmpdec_version__)"),
        # of the distribution whose libffi.so.7 it is; the library does not say
        Linked("libffi", "MIT", "print('3.3')"),
    ),
    "zstandard": (
        Linked("zstd", "BSD-3-Clause", "import zstandard; print(*zstandard.ZSTD_VERSION, sep='.')"),
    ),
    "lz4": (Linked("lz4", "BSD-2-Clause", "import lz4; print(lz4.library_version_string())"),),
    "isal": (Linked("isa-l", "BSD-3-Clause", "import isal; print(isal.ISAL_VERSION)"),),
    "deflate": (Linked("libdeflate", "MIT", "print('unknown')"),),
}
_OURS = ("libffi.so.7", "libsemclockwait.so")


def write_sbom(root: Path, source: Path, target: Path) -> None:
    """The packages of a bundle, its Python and the libraries that came along, as CycloneDX JSON without a time or a random number."""
    python = root / "python" / "bin" / PROGRAM
    text = run(
        sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", source / "pyproject.toml",
        "--mc-type", "application", python,
    )  # fmt: skip
    bom = json.loads(text)
    components = bom.setdefault("components", [])
    group, name, version, kind, classifier = ARTIFACT.split(":")
    components.append(
        {"type": "application", "name": "CPython", "version": VERSION, "bom-ref": "cpython", "licenses": [{"license": {"id": "PSF-2.0"}}],
         "purl": f"pkg:maven/{group}/{name}@{version}?classifier={classifier}&type={kind}"}
    )  # fmt: skip
    components += linked(root, {normal_name(each["name"]) for each in components})
    components += [part for part, _ in vendored(source)]
    for library in libraries(root):
        package, version = _debian_package(library)
        components.append(
            {"type": "library", "name": package, "version": version, "bom-ref": f"lib:{library.name}",
             "purl": f"pkg:deb/debian/{package}@{version}", "properties": [{"name": "kseg:file", "value": library.name}]}
        )  # fmt: skip
    components += _said_by_wheels(root)
    lacking = missing_components(bom, tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8")))
    named = {normal_name(each["name"]) for each in (*components, bom["metadata"]["component"])}
    lacking += sorted(owners(root) - named)
    if lacking:
        raise SystemExit(f"release: the SBOM lacks {', '.join(lacking)}")
    target.write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def linked(root: Path, present: set[str]) -> list[dict[str, Any]]:
    """The libraries linked into those of `present`."""
    python = root / "python" / "bin" / PROGRAM
    return [
        {"type": "library", "name": part.name, "version": run(python, "-I", "-c", part.asking).strip(),
         "bom-ref": f"linked:{owner}:{part.name}", "licenses": [{"license": {"id": part.licence}}],
         "properties": [{"name": "kseg:linked-into", "value": owner}]}
        for owner, parts in LINKED.items()
        if owner in present
        for part in parts
    ]  # fmt: skip


def vendored(source: Path) -> list[tuple[dict[str, Any], Path]]:
    """What is in kseg's own package as others have published it: (component, where its licence is)."""
    found = []
    for path in sorted((source / "cli" / "html" / "assets").glob("*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        component = {
            "type": "library", "name": said["name"], "version": said["version"], "bom-ref": f"vendored:{said['name']}",
            "licenses": [{"license": {"id": said["licence"]}}], "purl": f"pkg:npm/{said['name']}@{said['version']}",
            "hashes": [{"alg": "SHA-256", "content": said["sha256"]}], "properties": [{"name": "kseg:linked-into", "value": "kseg"}],
        }  # fmt: skip
        found.append((component, path.with_name(said["licence_file"])))
    return found


def licence_text(source: Path, part: Linked) -> Path:
    """Where the licence of a linked library is in the source tree."""
    return source / "LICENSE" if part.licence == "Apache-2.0" else source / "releasing" / "licences" / f"{part.name}.txt"  # fmt: skip


def _said_by_wheels(root: Path) -> list[dict[str, Any]]:
    """The components that wheels name in SBOMs of their own, under names that are unique here."""
    found = []
    for path in sorted(_site(root).glob("*.dist-info/sboms/*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        owner = path.parts[-3].removesuffix(".dist-info")
        for number, component in enumerate(said.get("components", ())):
            kept = {
                key: component[key]
                for key in ("type", "name", "version", "purl", "licenses")
                if key in component
            }
            properties = [{"name": "kseg:linked-into", "value": owner}]
            found.append(kept | {"bom-ref": f"linked:{owner}:{number}", "properties": properties})
    return found


def owners(root: Path) -> set[str]:
    """The packages (normal names) that the files of machine code belong to; a file's name where none has it."""
    home = root / "python"
    recorded: dict[str, str] = {}
    for record in _site(root).glob("*.dist-info/RECORD"):
        name = normal_name(record.parent.name.split("-")[0])
        recorded |= {line.split(",")[0].strip('"'): name for line in record.read_text(encoding="utf-8").splitlines()}  # fmt: skip
    beside = {library.name: normal_name(_debian_package(library)[0]) for library in libraries(root)}
    found = set()
    for path in elf_files(root):
        if path.is_relative_to(_site(root)):
            found.add(recorded.get(path.relative_to(_site(root)).as_posix(), path.name))
        elif path.parent == home / "lib" and path.name in beside:
            found.add(beside[path.name])
        elif path.name == "libffi.so.7":
            found.add("libffi")
        elif path.name == "libsemclockwait.so":
            found.add("kseg")
        else:
            within = (home / "bin", home / "lib", home / "lib" / PROGRAM / "lib-dynload")
            found.add("cpython" if path.parent in within else path.name)
    return found


def missing_components(bom: dict[str, Any], project: dict[str, Any]) -> list[str]:
    """The dependencies of kseg (no extras) that an SBOM does not name."""
    named = {normal_name(each["name"]) for each in bom["components"]}
    wanted = [re.split(r"[<>=!~;\[ ]", each)[0] for each in project["project"]["dependencies"]]
    return [name for name in wanted if normal_name(name) not in named]


def normal_name(name: str) -> str:
    """As the package index compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _site(root: Path) -> Path:
    return root / "python" / "lib" / PROGRAM / "site-packages"


def libraries(root: Path) -> list[Path]:
    """The shared libraries of the build machine beside the interpreter."""
    found = (root / "python" / "lib").glob("*.so*")
    return sorted(path for path in found if not path.name.startswith("libpython") and path.name not in _OURS)


def write_licences(root: Path, source: Path) -> None:
    """`licences/` of a bundle: a folder or a file for each part. Ends the release where one has no licence text."""
    place = root / "licences"
    place.mkdir()
    shutil.copy(root / "python" / "lib" / PROGRAM / "LICENSE.txt", place / "CPython.txt")
    names = {"cpython"}
    for information in sorted(_site(root).glob("*.dist-info")):
        names.add(normal_name(information.name.split("-")[0]))
        _licence_of_package(information, place / information.name.removesuffix(".dist-info"))
    for owner in sorted(names & set(LINKED)):
        for part in LINKED[owner]:
            shutil.copy(licence_text(source, part), place / f"{part.name} (in {owner}).txt")
    for component, text in vendored(source):
        shutil.copy(text, place / f"{component['name']} (in kseg).txt")
    for library in libraries(root):
        package, _ = _debian_package(library)
        text = Path("/usr/share/doc") / package / "copyright"
        if not text.exists():
            raise SystemExit(f"release: there is no licence text for {library.name} of {package}")
        shutil.copy(text, place / f"{package}.txt")


def _licence_of_package(information: Path, folder: Path) -> None:
    is_text = re.compile(r"(?i)(licen[cs]e|copying|notice|authors)").match
    texts = [path for path in sorted(information.rglob("*")) if path.is_file() and is_text(path.name)]
    metadata = (information / "METADATA").read_text(encoding="utf-8", errors="replace")
    said = re.findall(r"^(?:License|License-Expression|Classifier: License ::.*?)[:\s]*(.*)$", metadata, re.MULTILINE)  # fmt: skip
    folder.mkdir()
    if not texts and not said:
        raise SystemExit(f"release: {information.name} says nothing about its licence")
    for text in texts:
        shutil.copy(text, folder / text.name)
    if not texts:
        (folder / "LICENSE-as-declared.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    parts = sorted({line for path in sorted(information.glob("sboms/*.json")) for line in _declared(path)})
    if parts:
        (folder / "PARTS-as-declared.txt").write_text("\n".join(parts) + "\n", encoding="utf-8")


def _declared(path: Path) -> Iterator[str]:
    """A line for each component of a wheel's own SBOM: its name, version and licence."""
    for component in json.loads(path.read_text(encoding="utf-8")).get("components", ()):
        licences = [
            each.get("expression") or each["license"].get("id") or each["license"].get("name")
            for each in component.get("licenses", ())
        ]
        yield f"{component['name']} {component.get('version', '')}: {' '.join(licences) or 'not declared'}"


def _debian_package(library: Path) -> tuple[str, str]:
    """Which package of the build machine a library came from, and its version; the file's name and `unknown` elsewhere."""
    try:
        owner = subprocess.run(["dpkg", "-S", f"*/{library.name}"], capture_output=True, text=True, check=True).stdout  # fmt: skip
        package = owner.split(":")[0].split(",")[0]
        words = ["dpkg-query", "-W", "-f", "${Version}", package]
        version = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return library.name, "unknown"
    return package, version
