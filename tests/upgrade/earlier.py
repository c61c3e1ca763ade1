"""An earlier version of the program, from this repository's history, to run beside this one."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.crash.field import ROOT

EARLIER = "e542fb80fb874d86584a632feed0c5bbc4975fec"
"""Before blocks had totals, private topics their identities on record, and streams stops of their own."""


def earlier_tree(folder: Path) -> Path:
    """Its files. `python -m` takes them for those of this version where it is started among them."""
    done = subprocess.run(
        ["git", "archive", EARLIER, "agents", "engines", "schemas", "tests"], cwd=ROOT, capture_output=True
    )
    assert done.returncode == 0, f"this clone does not reach back to {EARLIER[:7]}: git fetch --unshallow"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
