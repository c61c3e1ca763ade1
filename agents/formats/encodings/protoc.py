"""Descriptors of Protobuf schemas, as registries hold them: .proto text, or descriptors in base64.

Text is compiled by protoc as a library, which reads and writes files: in a scratch folder.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
from importlib import import_module, resources
from pathlib import Path, PurePosixPath
from typing import Any

from agents.formats.schemas import SchemaText

_MAIN = "privstream_main.proto"
_WELL_KNOWN = "google/protobuf/"


def descriptors(text: SchemaText) -> list[Any]:
    """`FileDescriptorProto` of all files of a schema, each behind those that it imports.

    Raises: ValueError where it cannot be compiled; ImportError.
    """
    main = _serialized(text.text)
    return _compiled(text) if main is None else _ordered(main, text)


def _serialized(content: str) -> Any:
    """As some serializers register it; None where it is text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _ordered(main: Any, text: SchemaText) -> list[Any]:
    known = {name: _serialized(content) for name, content in text.references}
    found: dict[str, Any] = {}

    def visit(file: Any) -> None:
        for name in file.dependency:
            if name not in found:
                each = known[name] if name in known else _well_known(name)
                if each is None:
                    raise ValueError("a reference of another kind than the schema")
                each.name = name  # by which it is imported
                visit(each)
        found[file.name] = file

    visit(main)
    return list(found.values())


def _well_known(name: str) -> Any:
    """Of a file that comes with the library. Raises: ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not name.startswith(_WELL_KNOWN) or ".." in name:
        raise ValueError("a schema imports a file that the registry does not have")
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:  # the library itself is there: the file is one that it never had
        raise ValueError("a schema imports a file that does not come with Protobuf") from None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _compiled(text: SchemaText) -> list[Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory(prefix="privstream-proto-") as folder:
        for name, content in (*text.references, (_MAIN, text.text)):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError("a reference leads out of its folder")
            place = Path(folder) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        out = Path(folder) / "descriptors.bin"
        known = str(resources.files("grpc_tools") / "_proto")
        failed = protoc.main(
            ["protoc", f"-I{folder}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}", _MAIN]
        )
        if failed:
            raise ValueError("not a .proto file that can be compiled")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)
