"""Where a worker keeps its state tables when nobody says so: below the user's state folder, never in the working one.

They are a cache of the release log, and as sensitive as the raw topics. Wherever a worker finds none it reads them back
from Kafka, so another place costs time and nothing else. What lies in the folder of ANOTHER cluster is of no use, and a
stream whose state is ahead of its release log stops: so each cluster has a folder of its own, by Kafka's id of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

from schemas.errors import StoreError

if TYPE_CHECKING:
    from schemas.config.server import JobSection

SET_IT = "Fix: set data_dir in [job], or PRIVSTREAM_JOB__DATA_DIR, to a folder of this user."


def root_of(job: JobSection, cluster: str | None) -> Path:
    """Return the folder in which the job's own is made: as configured, or the cluster's in `~/.local/state/privstream`
    (`$XDG_STATE_HOME/privstream`, or what this system has for it).

    Raises: StoreError if there is no home for it.
    """
    if job.data_dir is not None:
        return job.data_dir.absolute()
    try:
        return (user_state_path("privstream", appauthor=False) / (cluster or "cluster")).absolute()
    except RuntimeError:  # no HOME, and a user without an entry
        raise StoreError(f"this user has no home folder for the state tables. {SET_IT}") from None
