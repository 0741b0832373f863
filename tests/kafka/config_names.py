"""The names of Kafka's configurations, from its own definitions: `internal_topics/schemas/config-names-4.3.1.json`.

python -m tests.kafka.config_names writes this file
"""

from __future__ import annotations

import json

from tests.kafka.shared_java import run_java
from tests.support.paths import ROOT

TARGET = ROOT / "internal_topics" / "schemas" / "config-names-4.3.1.json"


def as_text() -> str:
    """The content of the file, one name a line, so that a changed name is a changed line in a diff."""
    done = run_java("kseg.oracle.ConfigNames")
    done.check_returncode()
    kinds = json.loads(done.stdout.splitlines()[-1])
    separators = ",\n", ""
    lines = (f'"{kind}": {json.dumps(names, separators=separators)}' for kind, names in kinds.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(as_text(), encoding="utf-8")
