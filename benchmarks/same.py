"""`make same`: SHA-256 of what fixed seeds release, to show that a change of the code changed no release.

For each setting of `benchmarks.couple.settings` (every engine, mode and variant): blocks, candidates (with states) and
public records of one seeded run of the job without Kafka. For each example: `explain --json`, and in every mode of its
engine what `simulate` writes of its first rows. `--write FILE` keeps the hashes, `--check FILE` compares with kept
ones and names what differs; both need the same machine, since floats may differ between processors.

The last line is JSON: settings, differing, all (one hash of all).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agents.offline.processes import process_pool
from benchmarks.couple.inputs import inputs
from benchmarks.couple.runs import CROWD, Job
from benchmarks.couple.settings import settings
from engines.auditor.coupling import OutputAdversary, Recorder
from schemas.config import ENGINES

STEPS = 44
SEED = 1
ROWS = 2000
"""Of an example's file."""
EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = {
    "taxi": "nyc_taxi/taxi_2016_01_sample_20k.csv.gz",
    "departures": "nyc_departures/departures_2013_01.csv.gz",
    "evictions": "sf_evictions/eviction_notices_2011_2015.csv.gz",
    "trips": "town/drives.csv.gz",
}


def run_hash(name: str) -> str:
    """Of blocks, candidates and public records of a setting's run."""
    stream = dict(settings())[name]
    drawn = inputs(stream, random.Random(f"same {name}"), steps=STEPS, crowd=CROWD)
    job = Job(stream, drawn.first, Recorder(OutputAdversary()), random.Random(SEED), passive=True)
    found = hashlib.sha256()
    for records in job.releases():
        for record in records:
            _add(found, record.channel.encode(), record.key, record.value or b"")
        _add(found, job.candidate.encode())
    for block in job.blocks:
        _add(found, block.encode())
    return found.hexdigest()


def example_hash(name: str) -> str:
    """Of `explain --json` of an example, or of `simulate` in a mode: `taxi` or `taxi/default`."""
    example, _, mode = name.partition("/")
    config = EXAMPLES / f"{example}.toml"
    if not mode:
        return hashlib.sha256(_privstream("explain", str(config), "--json")).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.csv"
        with gzip.open(EXAMPLES / FILES[example], "rt") as whole:
            rows.write_text("".join(islice(whole, ROWS)))
        out = Path(folder) / "out"
        seeded = ("--seed", str(SEED), "--insecure-seed")
        _privstream("simulate", str(config), str(rows), "--out", str(out), "--mode", mode, *seeded)
        found = hashlib.sha256()
        for path in sorted(out.rglob("*")):
            if path.suffix in (".csv", ".jsonl"):
                _add(found, str(path.relative_to(out)).encode(), path.read_bytes())
        return found.hexdigest()


def names() -> Iterator[str]:
    """Of everything that is hashed."""
    yield from (name for name, _ in settings())
    for example in FILES:
        yield example
        engine = tomllib.loads((EXAMPLES / f"{example}.toml").read_text())["streams"][0]["engine"]
        yield from (f"{example}/{mode}" for mode in ENGINES[engine].facts.modes)


def hash_of(name: str) -> str:
    """Of a setting or of an example; a refusal is a result too."""
    try:
        return example_hash(name) if name.partition("/")[0] in FILES else run_hash(name)
    except subprocess.CalledProcessError as error:
        return "refused " + hashlib.sha256(error.stderr).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="keep the hashes in this file")
    parser.add_argument("--check", type=Path, help="compare with the hashes of this file")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    every = list(names())
    with process_pool(options.workers) as pool:
        hashes = dict(zip(every, pool.map(hash_of, every), strict=True))
    kept = json.loads(options.check.read_text()) if options.check else hashes
    differing = sorted(name for name in hashes.keys() | kept.keys() if hashes.get(name) != kept.get(name))
    for name in differing:
        print(f"differs: {name}")
    if options.write:
        options.write.write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n")
    whole = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
    print(json.dumps({"settings": len(hashes), "differing": len(differing), "all": whole}))
    return int(bool(differing))


def _privstream(*arguments: str) -> bytes:
    program = Path(sys.executable).with_name("privstream")
    printed = subprocess.run([program, *arguments], check=True, capture_output=True, cwd=EXAMPLES.parent).stdout
    return printed.replace(str(EXAMPLES.parent).encode(), b".")  # wherever the project lies


def _add(found: hashlib._Hash, *parts: bytes) -> None:
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)


if __name__ == "__main__":
    sys.exit(main())
