"""The keys under which user ids are hashed: made from the secret files that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.kafka.security import read_secret
from agents.protocol.userhash import KEY_BYTES, key_id, user_key
from schemas.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from schemas.config import Config, Stream


def user_keys(config: Config) -> dict[str, bytes | None]:
    """Stream -> key of its user hash, None where it has no users. Reads the secret files. Raises: ConfigError."""
    return {stream.name: _user_key(stream) for stream in config.streams}


def user_key_ids(config: Config) -> dict[str, str | None]:
    """Stream -> what names its key in the fingerprint. Raises: ConfigError."""
    return {name: None if key is None else key_id(key) for name, key in user_keys(config).items()}


def _user_key(stream: Stream) -> bytes | None:
    if not stream.privacy.bounds_users:
        return None
    where = f"streams.{stream.name}.privacy.user_key_file"
    fix = (
        "name a file with at least 16 random bytes, or set PRIVSTREAM_USER_KEY_FILE. To make one: "
        "head -c 32 /dev/urandom > user.key && chmod 600 user.key"
    )
    if stream.privacy.user_key_file is None:
        raise ConfigError([ConfigProblem(where, "missing: the hash of user ids needs a secret", fix)])
    if not stream.privacy.user_key_file.exists():
        raise ConfigError([ConfigProblem(where, f"{stream.privacy.user_key_file} is not there", fix)])
    secret = read_secret(stream.privacy.user_key_file, key=where)
    if len(secret) < KEY_BYTES:
        raise ConfigError([ConfigProblem(where, f"the file holds less than {KEY_BYTES} bytes", fix)])
    return user_key(secret, stream=stream.name)
