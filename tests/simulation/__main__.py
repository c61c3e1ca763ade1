"""The whole job, simulated: `python -m tests.simulation --seeds 10000 --plants`.

Each seed is a job of one to three workers on an in-memory Kafka under virtual time, with faults, and is judged when it
is over (see docs/notes/0018-the-whole-job-simulated.md). A seed that breaks a promise is printed with the command that
lives it again. The last line is JSON; the exit code is 1 where a promise is broken or a planted fault is not found.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

from agents.local.offline.processes import end_with

STEPS = 8
MOST_SEEDS = 120  # in which a planted fault must show
ITS_OWN = ("Traceback", "in tests.simulation.plants")
"""What a violation says where the simulation or the planted fault failed itself, and so found nothing."""
HASHES = "PYTHONHASHSEED"


def main() -> int:
    if os.environ.get(HASHES) != "0":  # sets of texts must be walked in the same order in each run
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, HASHES: "0"}
        )
    if sys.argv[1:] == ["--each"]:
        return _each()
    return _main(sys.argv[1:])


def _each() -> int:
    """Take each line of standard input for the arguments of a call. Only the first has to wait for the imports.

    Prints a JSON object in a line for each: its exit code, and what it printed.
    """
    from tests.simulation import run  # noqa: F401  # imported once, before the fork

    def called(arguments: list[str]) -> dict:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = _main(arguments)
        return {"code": code, "printed": printed.getvalue()}

    for line in sys.stdin:
        print(json.dumps(_forked(partial(called, shlex.split(line)))), flush=True)
    return 0


def _main(arguments: list[str]) -> int:
    options = _options(arguments)
    if options.seed is not None:
        return _explain(options)
    found, days, cpu_s, broken = 0, 0.0, 0.0, 0
    for verdict in _lives(options, range(options.first, options.first + options.seeds)):
        days, cpu_s = days + verdict["days"], cpu_s + verdict["cpu_s"]
        if verdict["violations"]:
            broken += 1
            print(f"seed {verdict['seed']}: {verdict['violations'][0]}")
            print(f"  again: python -m tests.simulation {_again(options)} --seed {verdict['seed']}", flush=True)
    planted = _plants(options) if options.plants else {}
    found = sum(count is not None for count in planted.values())
    print(
        json.dumps(
            {
                "seeds": options.seeds,
                "simulated_days": round(days, 2),
                "violations": broken,
                "planted": len(planted),
                "planted_found": found,
                "days_per_cpu_second": round(days / cpu_s, 3) if cpu_s else None,
                "seeds_until_found": planted,
            }
        )
    )
    return int(bool(broken) or found < len(planted))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="The whole job, simulated.")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with everything that happened")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of 15 minutes, two healthy ones come on top")
    parser.add_argument("--faults", type=float, help="faults in an hour; by the seed if not given")
    parser.add_argument("--plants", action="store_true", help="also build in each planted fault and look for it")
    parser.add_argument("--plant", default="", help="build in this fault (with --seed or --seeds)")
    parser.add_argument("--late-end", action=argparse.BooleanOptionalAction, help="EndTxn may arrive late")
    parser.add_argument("--retention", action="store_true", help="somebody sets retention on a private topic")
    parser.add_argument("--put-back", action="store_true", help="the cluster is put back, and the witness is not")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    return parser.parse_args(arguments)


def _again(options: argparse.Namespace) -> str:
    given = [f"--steps {options.steps}"]
    given += [f"--faults {options.faults}"] if options.faults is not None else []
    given += [f'--plant "{options.plant}"'] if options.plant else []
    given += ["--late-end" if options.late_end else "--no-late-end"] if options.late_end is not None else []
    given += ["--retention"] if options.retention else []
    return " ".join(given + (["--put-back"] if options.put_back else []))


def _live(options: argparse.Namespace, seed: int, plant: str = "") -> dict:
    from tests.simulation.faults import Switches
    from tests.simulation.run import live
    from tests.simulation.world import Length

    plant = plant or options.plant
    late = {"late_end": True} if plant == "retry" else {}
    late = {"late_end": options.late_end} if options.late_end is not None else late
    put_back = options.put_back or plant.startswith("witness")
    switches = Switches(retention=options.retention, put_back=put_back, faults=options.faults, **late)
    return asdict(live(seed, length=Length(options.steps, max(1, options.steps - 1)), switches=switches, plant=plant))


def _apart(options: argparse.Namespace, seed: int, plant: str = "") -> dict:
    """Live a seed in a process of its own: no other seed moves it."""
    from tests.simulation import run  # noqa: F401  # imported once, before the fork

    try:
        return _forked(lambda: _live(options, seed, plant))
    except ChildProcessError as error:
        return {"seed": seed, "violations": [str(error)], "days": 0.0, "cpu_s": 0.0}


def _forked(work: Callable[[], dict]) -> dict:
    """Return what `work` returns in a process of its own: what it leaves behind goes with it.

    Raises: ChildProcessError with its traceback.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        end_with(parent)
        os.close(reading)
        try:
            warnings.simplefilter("ignore")
            sys.unraisablehook = lambda *_: None
            found = {"returned": work()}
        except BaseException:
            found = {"raised": traceback.format_exc(limit=-6)}  # type: ignore[dict-item]
        with os.fdopen(writing, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = json.load(pipe)
    os.waitpid(child, 0)
    if "raised" in answer:
        raise ChildProcessError(answer["raised"])
    return answer["returned"]


def _lives(options: argparse.Namespace, seeds: range) -> Iterator[dict]:
    from tests.simulation import run  # noqa: F401

    if options.jobs == 1:
        yield from (_apart(options, seed) for seed in seeds)
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(lambda seed: _apart(options, seed), seeds)


def _plants(options: argparse.Namespace) -> dict[str, int | None]:
    """Planted fault -> seeds until it shows; None: not found."""
    from tests.simulation.plants import PLANTS

    found: dict[str, int | None] = {}
    for name in PLANTS:
        found[name] = None
        for number in range(1, MOST_SEEDS + 1):
            verdict = _apart(options, options.first + number - 1, name)
            if verdict["violations"]:
                found[name] = None if any(mark in verdict["violations"][0] for mark in ITS_OWN) else number
                break
        shown = verdict["violations"][0][:160] if verdict["violations"] else "NOT FOUND"
        print(f"planted: {name}: seeds {found[name]}: {shown}", flush=True)
    return found


def _explain(options: argparse.Namespace) -> int:
    began = time.process_time()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda *_: None
    verdict = _live(options, options.seed)
    for fault in verdict["faults"]:
        print(f"  {fault}")
    for violation in verdict["violations"]:
        print(f"BROKEN: {violation}")
    kept = {name: verdict[name] for name in ("seed", "digest", "days", "starts", "rebalances")}
    print(
        json.dumps({**kept, "violations": len(verdict["violations"]), "cpu_s": round(time.process_time() - began, 2)})
    )
    return int(bool(verdict["violations"]))


if __name__ == "__main__":
    sys.exit(main())
