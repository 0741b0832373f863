"""What a bundle is made of: an SBOM (CycloneDX), and the licences of all of it."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from releasing.bundle import MINOR
from releasing.commands import run


def write_sbom(root: Path, source: Path, target: Path) -> None:
    """The packages of a bundle, its Python and the libraries that came along, as CycloneDX JSON without a time or a random number."""
    python = root / "python" / "bin" / MINOR
    text = run(
        sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", source / "pyproject.toml", "--mc-type", "application",
        python,
    )  # fmt: skip
    bom = json.loads(text)
    bom.setdefault("components", []).append(
        {"type": "application", "name": "CPython", "version": sys.version.split()[0], "bom-ref": "cpython",
         "licenses": [{"license": {"id": "PSF-2.0"}}]}
    )  # fmt: skip
    for library in libraries(root):
        package, version = _debian_package(library)
        bom["components"].append(
            {"type": "library", "name": package, "version": version, "bom-ref": f"lib:{library.name}",
             "purl": f"pkg:deb/debian/{package}@{version}", "properties": [{"name": "kseg:file", "value": library.name}]}
        )  # fmt: skip
    lacking = missing_components(bom, tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8")))
    if lacking:
        raise SystemExit(f"release: the SBOM lacks {', '.join(lacking)}")
    target.write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def missing_components(bom: dict[str, Any], project: dict[str, Any]) -> list[str]:
    """The dependencies of kseg (no extras) that an SBOM does not name."""
    named = {_normal(each["name"]) for each in bom["components"]}
    wanted = [re.split(r"[<>=!~;\[ ]", each)[0] for each in project["project"]["dependencies"]]
    return [name for name in wanted if _normal(name) not in named]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def libraries(root: Path) -> list[Path]:
    """The shared libraries beside the interpreter that are not its own."""
    found = (root / "python" / "lib").glob("*.so*")
    return sorted(path for path in found if not path.name.startswith("libpython"))


def write_licences(root: Path) -> None:
    """`licences/` of a bundle: a folder for each part. Ends the release where one has no licence text."""
    place = root / "licences"
    place.mkdir()
    standard = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    shutil.copy(standard, place / "CPython.txt")
    site = root / "python" / "lib" / MINOR / "site-packages"
    for information in sorted(site.glob("*.dist-info")):
        texts = [path for path in sorted(information.rglob("*")) if path.is_file() and re.match(r"(?i)(licen[cs]e|copying|notice|authors)", path.name)]  # fmt: skip
        metadata = (information / "METADATA").read_text(encoding="utf-8", errors="replace")
        said = re.findall(r"^(?:License|License-Expression|Classifier: License ::.*?)[:\s]*(.*)$", metadata, re.MULTILINE)  # fmt: skip
        folder = place / information.name.removesuffix(".dist-info")
        folder.mkdir()
        if not texts and not said:
            raise SystemExit(f"release: {information.name} says nothing about its licence")
        for text in texts:
            shutil.copy(text, folder / text.name)
        if not texts:
            (folder / "LICENSE-as-declared.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    for library in libraries(root):
        package, _ = _debian_package(library)
        text = Path("/usr/share/doc") / package / "copyright"
        if text.exists():
            shutil.copy(text, place / f"{package}.txt")


def _debian_package(library: Path) -> tuple[str, str]:
    """Which package of the build machine a library came from, and its version; the file's name and `unknown` elsewhere."""
    try:
        owner = subprocess.run(["dpkg", "-S", f"*/{library.name}"], capture_output=True, text=True, check=True).stdout  # fmt: skip
        package = owner.split(":")[0].split(",")[0]
        version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=True).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return library.name, "unknown"
    return package, version
