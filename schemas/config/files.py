"""Public files that a configuration names: a map, a matrix, a schema. Read once, when the configuration is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo

from schemas.config.section import FOLDER, Section, refusal

LARGEST_FILE_BYTES = 256 << 20


class PublicFile(Section):
    """A file's place and content. In the configuration it is written as its path, relative to the configuration.

    Attributes:
        path: as resolved. sha256: of the content, in hexadecimal; what fingerprints hold. content: the bytes.
    """

    path: str
    sha256: str
    content: bytes = Field(repr=False)


def _read(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        if isinstance(value, (PublicFile, dict)):
            return value
        raise refusal("must be the path of a file", "write the path in double quotes")
    folder: Any = info.context.get(FOLDER) if isinstance(info.context, dict) else None
    path = Path(folder or ".") / value
    fix = "name a file that this user may read; its path is relative to the configuration file"
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise refusal(f"cannot be read: {reason}", fix) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise refusal(f"is larger than {LARGEST_FILE_BYTES >> 20} MiB", "simplify it")
    return {"path": str(path), "sha256": hashlib.sha256(content).hexdigest(), "content": content}


PublicFileAt = Annotated[PublicFile, BeforeValidator(_read, json_schema_input_type=str)]
"""Type of a key that names a public file by its path."""
