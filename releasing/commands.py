"""Running the tools."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def run(*words: str | Path, environment: Mapping[str, str] | None = None, into: Path | None = None) -> str:
    """What a tool prints. Ends the release with its last words when it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=into,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise SystemExit(f"release: {' '.join(map(str, words))} ended with {done.returncode}:\n{output}")
    return done.stdout
