"""The encoding that a configuration names. Libraries are asked for here, before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from agents.protocol.formats.avro import AvroEncoding
from agents.protocol.formats.contract import Encoding, SchemaBook
from agents.protocol.formats.csv_text import CsvEncoding
from agents.protocol.formats.json_text import JsonEncoding, MessagePackEncoding, TextEncoding
from agents.protocol.formats.protobuf import ProtobufEncoding
from agents.protocol.formats.values import Kinds
from schemas.config import Stream
from schemas.config.formats import CsvSection
from schemas.errors import ConfigError

NEEDS: Mapping[str, tuple[str, ...]] = {
    "avro": ("fastavro",),
    "protobuf": ("google.protobuf", "google.type", "grpc_tools"),
}
"""Format -> modules of the extra `registry`."""


@dataclass(frozen=True, slots=True)
class InputFormat:
    """The format of a source's records; by default, JSON objects with nothing around them."""

    format: str = "json"
    envelope: str = "none"
    key_format: str = "text"
    csv: CsvSection | None = None

    @staticmethod
    def from_stream(stream: Stream) -> InputFormat:
        """Raises: ConfigError where a library is not there."""
        check_installed(stream, "format", stream.format)
        check_installed(stream, "key_format", stream.key_format)
        csv = stream.csv if stream.format == "csv" else None  # elsewhere it is of files
        return InputFormat(stream.format, stream.envelope, stream.key_format, csv)

    def encoding(self, book: SchemaBook, kinds: Kinds) -> Encoding:
        """Return the encoding of values. Args: kinds: what each field can be, where a format has texts alone."""
        if self.format == "csv":
            csv = self.csv or CsvSection()
            return CsvEncoding(kinds, csv.columns, csv.delimiter, csv.decimal, csv.encoding)
        return _ENCODINGS[self.format](book)

    def key_encoding(self, book: SchemaBook) -> Encoding:
        return _ENCODINGS[self.key_format](book)


JSON = InputFormat()
ROWS = InputFormat("rows")
"""Rows of a file, as JSON objects: a column is what has a field's very name, also one that begins with `$`."""

_ENCODINGS: Mapping[str, Callable[[SchemaBook], Encoding]] = {
    "json": lambda book: JsonEncoding(),
    "rows": lambda book: JsonEncoding(),
    "json-schema": lambda book: JsonEncoding(framed=True),
    "avro": AvroEncoding,
    "protobuf": ProtobufEncoding,
    "msgpack": lambda book: MessagePackEncoding(),
    "text": lambda book: TextEncoding(),
}


def check_installed(stream: Stream, key: str, chosen: str) -> None:
    """Check that the libraries of a format are there. Args: key: that names the format. Raises: ConfigError."""
    if missing := [name for name in NEEDS.get(chosen, ()) if not _there(name)]:
        raise ConfigError.of(
            f"streams.{stream.name}.{key}",
            f'"{chosen}" needs {" and ".join(missing)}, which is not installed',
            "pip install 'privstream[registry]'",
        )


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that is not there itself
        return False
