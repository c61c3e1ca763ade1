"""Resolve the embedded broker's jars anew and write their list with hashes; part of `make lock`.

A list beside the code rather than a resolution at run time: every machine runs the same bytes, checked before they are
run, and the first start downloads jars only instead of walking a hundred project descriptions first.
"""

import hashlib
from pathlib import Path

import jgo

KAFKA = "org.apache.kafka:kafka_2.13:4.3.0"
# Kafka logs through slf4j; the simple backend writes warnings to standard error, where BrokerError can quote them.
LOGGING = "org.slf4j:slf4j-simple:2.0.17"
LIST = Path(__file__).parent.parent / "agents" / "broker" / "jars.lock"

HEAD = """\
# The class path of the embedded broker: sha256, then group:artifact:version. Written by `make lock`.
"""


def main() -> None:
    lines = []
    for artifact in jgo.resolve(f"{KAFKA}+{LOGGING}"):
        digest = hashlib.sha256(artifact.resolve().read_bytes()).hexdigest()
        lines.append(f"{digest}  {artifact.groupId}:{artifact.artifactId}:{artifact.version}\n")
    LIST.write_text(HEAD + "".join(sorted(lines, key=lambda line: line.split()[1])), encoding="utf-8")
    print(f"{LIST.name}: {len(lines)} jars")


if __name__ == "__main__":
    main()
