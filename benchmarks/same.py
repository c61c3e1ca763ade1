"""`make same`: SHA-256 of what fixed seeds release, to show that a change of the code changed no release.

For each setting of `agents.local.coupling.runs.settings` (every engine, mode and variant): blocks, candidates (with
states) and public records of one seeded run of the job without Kafka. Each of these is hashed twice: as the bytes that
travel, and decoded, so that a change of how they are written can be shown to change nothing else. For each example:
`explain --json`, and in every mode of its engine what `simulate` writes of its first rows.

`--write FILE` keeps the hashes, `--check FILE` compares with kept ones and names what differs; both need the same
machine, since floats may differ between processors. `--decoded` compares decoded values alone. `--gone NAME ...` names
settings that were removed on purpose, or with a last `*` all that begin so: they must be among the kept ones, and no
longer be there.

The last line is JSON: settings, differing, gone, all (one hash of all).
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import numpy as np
import orjson

from agents.local.coupling.inputs import inputs
from agents.local.coupling.runs import CROWD, JobRun, settings
from agents.local.offline.processes import process_pool
from engines.checks.coupling import OutputAdversary, Recorder
from schemas.blocks import Block
from schemas.config import ENGINES
from schemas.releases import Candidate, unframe_records

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


Hashes = dict[str, str]
"""`bytes`, and of settings `decoded` too."""


def run_hashes(name: str) -> Hashes:
    """Hash the blocks, candidates and public records of a setting's run, as bytes and decoded."""
    stream = dict(settings())[name]
    drawn = inputs(stream, random.Random(f"same {name}"), steps=STEPS, crowd=CROWD)
    job = JobRun(stream, drawn.first, Recorder(OutputAdversary()), random.Random(SEED), passive=True)
    found, decoded = hashlib.sha256(), hashlib.sha256()
    for records in job.releases():
        for record in records:
            _add(found, record.channel.encode(), record.key, record.value or b"")
            _add_value(decoded, _public(record.channel, record.key, record.value))
        assert job.candidate is not None
        encoded = job.candidate.encode()
        _add(found, encoded.release, encoded.state.body)
        _add_value(decoded, _candidate(Candidate.decode(*encoded)))
    for block in job.blocks:
        body = block.encode()
        _add(found, body)
        _add_value(decoded, Block.decode(body))
    return {"bytes": found.hexdigest(), "decoded": decoded.hexdigest()}


def _candidate(candidate: Candidate) -> Mapping[str, object]:
    """The meaning of a candidate: without digests, which are of bytes, and without version numbers of stored states."""
    assert candidate.arrays is not None
    arrays = {
        name: array[1:] if name.rpartition("/")[2] == "header" else array for name, array in candidate.arrays.items()
    }
    records = [_public(*record) for record in unframe_records(candidate.payload)]
    ledger = orjson.loads(candidate.ledger)
    return {
        "stream": candidate.stream,
        "step": candidate.step,
        "records": records,
        "ledger": {name: value for name, value in ledger.items() if name != "chain"},
        "progress": candidate.progress,
        "arrays": arrays,
        "kept": [part.read() for part in candidate.kept],
    }


def _public(channel: str, key: bytes, value: bytes | None) -> tuple[object, ...]:
    return channel, key, None if value is None else orjson.loads(value)


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
        seeded = ("--insecure-seed", str(SEED))
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


def hashes_of(name: str) -> Hashes:
    """Hash a setting or an example; a refusal is a result too."""
    if name.partition("/")[0] not in FILES:
        return run_hashes(name)
    try:
        return {"bytes": example_hash(name)}
    except subprocess.CalledProcessError as error:
        return {"bytes": "refused " + hashlib.sha256(error.stderr).hexdigest()}


def differing(
    hashes: Mapping[str, Hashes], kept: Mapping[str, Hashes], gone: Sequence[str] = (), *, decoded: bool = False
) -> tuple[list[str], list[str]]:
    """Return what differs, in words, and the names of settings that are gone on purpose.

    Args:
        gone: names, or beginnings of names with a last `*`. decoded: compare decoded values where there are such.
    """
    left = sorted(name for name in kept.keys() - hashes.keys() if any(fnmatchcase(name, each) for each in gone))
    told = [
        f"{each}: no kept setting of this name is gone" for each in gone if not any(fnmatchcase(n, each) for n in left)
    ]

    def compared(found: Hashes | None) -> str | None:
        if found is None:
            return None
        return found.get("decoded", found["bytes"]) if decoded else found["bytes"]

    others = (hashes.keys() | kept.keys()) - set(left)
    told += [name for name in sorted(others) if compared(hashes.get(name)) != compared(kept.get(name))]
    return told, left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="keep the hashes in this file")
    parser.add_argument("--check", type=Path, help="compare with the hashes of this file")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--decoded", action="store_true", help="compare decoded values, and not how they are written")
    parser.add_argument("--gone", nargs="+", default=[], metavar="NAME", help="settings that were removed on purpose")
    parser.add_argument(
        "--only", default="*", metavar="NAME", help="settings of this name, or with a last * that begin so"
    )
    options = parser.parse_args()
    every = [name for name in names() if fnmatchcase(name, options.only)]
    with process_pool(options.workers) as pool:
        hashes = dict(zip(every, pool.map(hashes_of, every), strict=True))
    kept = json.loads(options.check.read_text()) if options.check else hashes
    kept = {name: each for name, each in kept.items() if fnmatchcase(name, options.only)}
    told, left = differing(hashes, kept, options.gone, decoded=options.decoded)
    for name in told:
        print(f"differs: {name}")
    if options.write:
        options.write.write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n")
    whole = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
    print(json.dumps({"settings": len(hashes), "differing": len(told), "gone": len(left), "all": whole}))
    return int(bool(told))


def _privstream(*arguments: str) -> bytes:
    program = Path(sys.executable).with_name("privstream")
    printed = subprocess.run([program, *arguments], check=True, capture_output=True, cwd=EXAMPLES.parent).stdout
    return printed.replace(str(EXAMPLES.parent).encode(), b".")  # wherever the project lies


def _add(found: hashlib._Hash, *parts: bytes) -> None:
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)


def _add_value(found: hashlib._Hash, value: object) -> None:
    """Add a decoded value. Fields at their empty value count as absent, so that one nobody used may go."""
    match value:
        case np.ndarray():
            _add(found, b"array", value.dtype.str.encode(), repr(value.shape).encode(), value.tobytes())
        case Mapping():
            _add(found, b"mapping", str(len(value)).encode())
            for name in sorted(value, key=str):
                _add(found, str(name).encode())
                _add_value(found, value[name])
        case list() | tuple():
            _add(found, b"list", str(len(value)).encode())
            for each in value:
                _add_value(found, each)
        case bytes():
            _add(found, b"bytes", value)
        case _ if is_dataclass(value):
            said = {field.name: getattr(value, field.name) for field in fields(value)}
            _add_value(found, {name: each for name, each in said.items() if not _empty(each)})
        case _:
            _add(found, b"plain", repr(value).encode())


def _empty(value: object) -> bool:
    return value is None or (len(value) == 0 if isinstance(value, np.ndarray | Mapping) else value == 0)


if __name__ == "__main__":
    sys.exit(main())
