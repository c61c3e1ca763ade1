"""Descriptors of Protobuf schemas, as registries hold them: .proto text, or descriptors in base64.

Text is compiled by protoc, which reads files: in a scratch folder.
"""

from __future__ import annotations

import base64
import binascii
import errno
import signal
import subprocess
import sys
import tempfile
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from agents.protocol.formats.schemas import SchemaText
from schemas.errors import StoreError

_MAIN = "privstream_main.proto"
_WELL_KNOWN = "google/protobuf/"
_OF_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
"""What is wrong with the name of a file and not with the disk."""


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
    """Raises: StoreError where this machine cannot do it now: that is no fault of the schema, which loses no record."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if find_spec("grpc_tools") is None:
        raise ImportError("grpc_tools")
    try:
        with tempfile.TemporaryDirectory(prefix="privstream-proto-") as folder:
            for name, content in (*text.references, (_MAIN, text.text)):
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts:
                    raise ValueError("a reference leads out of its folder")
                place = Path(folder) / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content, encoding="utf-8")
            found = _protoc(folder)
    except OSError as error:
        if error.errno in _OF_NAMES:
            raise ValueError("a reference whose name no file can have") from None
        reason = error.strerror or type(error).__name__
        raise StoreError(f"Protobuf schemas cannot be compiled in the folder of TMPDIR: {reason}") from None
    return list(FileDescriptorSet.FromString(found).file)


def _protoc(folder: str) -> bytes:
    """The descriptors of what lies in a folder. Raises: ValueError; OSError.

    By a process of its own: protoc writes to the terminal what it finds wrong, and repeats the schema there; and where
    it crashes on one, the worker does not.
    """
    known = str(resources.files("grpc_tools") / "_proto")
    ended = subprocess.run(
        # -P: modules are not looked for in the working folder.
        [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}", "--include_imports",
         "--descriptor_set_out=/dev/stdout", _MAIN],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if ended.returncode == -signal.SIGKILL:
        raise OSError("protoc was killed")
    if ended.returncode:
        raise ValueError("not a .proto file that can be compiled")
    return ended.stdout
