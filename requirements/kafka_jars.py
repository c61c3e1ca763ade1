"""Resolve the jars of the embedded broker, and of what tests run beside it; part of `make lock`.

A list beside the code rather than a resolution at run time: every machine runs the same bytes, checked before they are
run, and the first start downloads jars only instead of walking a hundred project descriptions first.
"""

import hashlib
from pathlib import Path

import jgo

# The newest of each line of Kafka that the job is tried on (`make brokers`), and that of demo and tests, the last one.
KAFKA = {"3.7": "3.7.2", "3.9": "3.9.2", "4.0": "4.0.2", "4.3": "4.3.0"}
# Kafka logs through slf4j; the simple backend writes warnings to standard error, where BrokerError can quote them.
LOGGING = "org.slf4j:slf4j-simple:2.0.17"
CONNECT = "org.apache.kafka:connect-runtime:4.3.0+org.apache.kafka:connect-file:4.3.0"
TOOLS = "org.apache.kafka:kafka-tools:4.3.0"
ROOT = Path(__file__).parent.parent
LISTS = {
    **{
        ROOT / "agents" / "local" / "broker" / f"kafka-{line}.lock": (
            f"the embedded broker, Kafka {line}",
            f"org.apache.kafka:kafka_2.13:{version}",
        )
        for line, version in KAFKA.items()
    },
    ROOT / "requirements" / "connect.lock": ("the Kafka Connect of tests", CONNECT),
    ROOT / "requirements" / "tools.lock": ("the console producer of tests", TOOLS),
}


def main() -> None:
    for path, (whose, wanted) in LISTS.items():
        lines = []
        for artifact in jgo.resolve(f"{wanted}+{LOGGING}"):
            digest = hashlib.sha256(artifact.resolve().read_bytes()).hexdigest()
            lines.append(f"{digest}  {artifact.groupId}:{artifact.artifactId}:{artifact.version}\n")
        head = f"# The class path of {whose}: sha256, then group:artifact:version. Written by `make lock`.\n"
        path.write_text(head + "".join(sorted(lines, key=lambda line: line.split()[1])), encoding="utf-8")
        print(f"{path.name}: {len(lines)} jars")


if __name__ == "__main__":
    main()
