"""Which place a job's witness is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agents.kafka.lifecycle.state_folder import root_of
from agents.kafka.witness.folder import Folder
from agents.kafka.witness.http import Endpoint
from agents.kafka.witness.s3 import Bucket

if TYPE_CHECKING:
    from agents.kafka.witness.store import Store
    from schemas.config import JobSection


def store_of(job: JobSection) -> Store:
    """The witness of a job: as configured, else below the folder of its state tables.

    Raises: ConfigError if its library or its headers cannot be used.
    """
    place = job.witness
    if place is None:
        return Folder(root_of(job, cluster=None), f"{job.name}/witness")
    match urlsplit(place).scheme:
        case "s3":
            return Bucket(place, job.name)
        case "http" | "https":
            return Endpoint(place, job.name, job.witness_headers_file)
    return Folder(Path(place), job.name)
