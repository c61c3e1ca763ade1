"""How events come into a source: what a producer must write, and how the usual clients place each user rightly."""

from __future__ import annotations

import json
from collections.abc import Mapping

from schemas.config import Stream

ENVELOPES = {"cloudevents": "CloudEvents", "debezium": "Debezium"}
LINES = "events.txt"
"""Name of the file that commands read events from."""
LIBRDKAFKA = {"murmur2": "murmur2_random", "crc32": "consistent_random"}
"""Partitioner of a stream -> its name in librdkafka. Records without a key go anywhere."""


def written_as(stream: Stream) -> str:
    """Return what a producer must write to the source, in a few words, before which topic that is."""
    named = {"json": "JSON", "csv": "CSV", "msgpack": "MessagePack", "json-schema": "JSON framed with a schema's id"}
    what = named.get(stream.format, stream.format)
    if stream.format == "csv":
        csv = stream.csv
        lines = "one line a record" if csv is not None and csv.columns is not None else "a header and one line a record"
        between = "," if csv is None else csv.delimiter
        what += f" ({lines}, {json.dumps(between)} between cells)"
    if stream.envelope != "none":
        what += f" in an envelope of {ENVELOPES.get(stream.envelope, stream.envelope)}"
    keyed = {"text": "", "json": ", as JSON", "json-schema": ", as JSON framed with a schema's id"}
    if not _keyed(stream):
        return what
    return f"{what}, keyed by the user{keyed.get(stream.key_format, '')},"


def lines_hold(stream: Stream) -> str:
    """Return what a line of `LINES` is; empty where records of the format are no lines."""
    if stream.format != "json" and not (stream.format == "csv" and stream.csv and stream.csv.columns):
        return ""
    return "a user id, a tab and an event of that user" if _keyed(stream) else "an event"


def producers(stream: Stream, bootstrap: str) -> Mapping[str, str]:
    """Return client -> how it writes to the source: a shell command, or how a program makes the client.

    Records that are keyed by their user's id come to the partition where the job looks for that user; where the job
    places users itself they need no key. A client that needs a class of its own is left out: Java under `crc32`.
    """
    keyed = _keyed(stream)
    place = stream.partitioner if keyed else "none"
    servers, librdkafka = json.dumps(bootstrap), LIBRDKAFKA.get(place)
    found = {}
    if lines_hold(stream):
        kcat = [f"kcat -P -b {bootstrap} -t {stream.source}"]
        kcat += [f"-X partitioner={librdkafka}"] if librdkafka else []
        kcat += [r"-K '\t'"] if keyed else []
        found["kcat"] = f"{' '.join(kcat)} < {LINES}"
        if place != "crc32":
            java = f"kafka-console-producer.sh --bootstrap-server {bootstrap} --topic {stream.source}"
            found["Java"] = f"{java}{' --property parse.key=true' if keyed else ''} < {LINES}"
    partitioner = f', "partitioner": "{librdkafka}"' if librdkafka else ""
    found["confluent-kafka"] = f'Producer({{"bootstrap.servers": {servers}{partitioner}}})'
    crc32 = ", partitioner=lambda key, every, _: every[zlib.crc32(key) % len(every)]" if place == "crc32" else ""
    found["aiokafka"] = f"AIOKafkaProducer(bootstrap_servers={servers}{crc32})"
    return found


def _keyed(stream: Stream) -> bool:
    user = stream.privacy.user
    return user is not None and (not stream.routed or user.startswith("$key"))
