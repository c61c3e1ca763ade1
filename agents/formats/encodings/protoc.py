"""Descriptors of a .proto file's text, by protoc as a library, which reads and writes files: in a scratch folder."""

from __future__ import annotations

import base64
import binascii
import tempfile
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from agents.formats.schemas import SchemaText

_MAIN = "privstream_main.proto"


def descriptors(text: SchemaText) -> list[Any]:
    """`FileDescriptorProto` of all files of a schema, each behind those that it imports.

    Raises: ValueError where it cannot be compiled; ImportError.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    try:  # as some registries hold it
        parsed = FileDescriptorProto.FromString(base64.b64decode(text.text, validate=True))
        if parsed.name and not parsed.dependency:
            return [parsed]
    except (binascii.Error, ValueError):
        pass
    except Exception as error:  # the library's DecodeError, of a text that is base64 by chance
        if type(error).__name__ != "DecodeError":
            raise
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
