"""Every recipe of docs/consumers.md, run as printed against the real broker: at night those of other programs, too."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pa_parquet
import pytest

from agents.local.broker.embedded import free_ports
from agents.local.broker.jars import jars, java_binary, kafka_version
from benchmarks.environments import environment
from engines.core.contract import Columns
from engines.core.registry import build_domain
from schemas.blocks import Folded
from schemas.config import Config, load_config
from schemas.releases import STEP_HEADER
from schemas.topics import Topics
from tests.commands import invoked
from tests.consume.runs import records_of as of_step
from tests.consume.runs import run
from tests.kafka.public_run import alive, publish
from tests.kafka.support import WAIT_AT_MOST_S, fresh_name, producing, records_of
from tests.maven import kept

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "consumers.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "examples" / "recipes" / "follow_a_topic.ipynb"
STEPS = 5
# Of programs that `make recipes` runs beside those of requirements/recipes.in.
FLINK_GATEWAY = "org.apache.flink:flink-sql-gateway:2.2.1"
FLINK_GATEWAY_SHA256 = "fde5f0f6e868c84de01312a4922404f9571c68a6d879e91fc602bbafa5d735aa"
FLINK_KAFKA = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
FLINK_KAFKA_SHA256 = "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616"
DEBEZIUM_JDBC = "io.debezium:debezium-connector-jdbc:3.6.0.Final:plugin:tar.gz"
DEBEZIUM_JDBC_SHA256 = "c23af8d416f0f801ffb0271b1a8fd9b5360ff8d66b0dd650e066bb56ecfddc05"
APICURIO_CONVERTER = "io.apicurio:apicurio-registry-distro-connect-converter:2.5.11.Final::tar.gz"
APICURIO_CONVERTER_SHA256 = "7c79f5486876e37c11a68c57b7ddfe69e393e0655a7300fc4bba1be390a439c0"
POSTGRES = "18"
CONNECT = ROOT / "requirements" / "connect.lock"


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """What stands behind the language, and the text, of each block."""
    for words, text in re.findall(rf"^```{language}([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        yield words.strip(), text


@pytest.fixture(scope="module")
def rides(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Stream `rides` of the example, under a name of its own, with five public steps; `fill` puts that name in.

    Behind them a worker has died in the middle of a step: whoever does not read what is committed has a row too many.
    """
    folder, name = tmp_path_factory.mktemp("recipes"), fresh_name("rides")
    text = (ROOT / "examples" / "own-cluster.toml").read_text(encoding="utf-8")
    for old, new in (
        ('name = "rides"', f'name = "{name}"'),
        ('name = "privstream"', f'name = "{name}-job"'),
        ("localhost:9092", bootstrap),
        ('start = "now"', 'start = "2026-01-01T00:00:00"'),
        ("depth = 18", "depth = 10"),
        ("initial_steps = 4", "initial_steps = 1"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "my.toml").write_text(text, encoding="utf-8")
    config = load_config(folder / "my.toml")
    stream, chance, batches = config.streams[0], np.random.default_rng(5), []
    for step in range(STEPS):
        size = 2_000 if step % 2 == 0 else 500
        lon, lat = chance.normal(13.4, 0.06, size).clip(13.1, 13.7), chance.normal(52.5, 0.04, size).clip(52.4, 52.6)
        keys, _ = build_domain(stream).encode(Columns({"lon": lon, "lat": lat}, {}, np.ones(size, np.int8)))
        batches.append(Folded.from_keys(keys))
    candidates = run(stream, batches)
    asyncio.run(publish(config, candidates, [of_step(each, "synthetic") for each in candidates]))
    asyncio.run(abort_a_step(config))

    def fill(printed: str) -> str:
        return re.sub(r"rides\.(synthetic|ledger)\b", rf"{name}.\1", printed).replace("localhost:9092", bootstrap)

    rows = asyncio.run(alive(config, STEPS - 1))
    return SimpleNamespace(folder=folder, config=config, topic=f"{name}.synthetic", rows=rows, fill=fill)


async def abort_a_step(config: Config) -> None:
    topic, record = (
        Topics.synthetic(config.streams[0].name),
        b'{"at":"2026-01-01T01:15:00+01:00","lon":13.4,"lat":52.5}',
    )
    async with producing(config.kafka.bootstrap, transactional_id=fresh_name("t")) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, record, key=b"never", partition=0, headers=[(STEP_HEADER, b"%d" % STEPS)])
        await producer.abort_transaction()


def commands(program: str = "") -> list[str]:
    """Lines of shell, of the blocks that are marked as another program's."""
    texts = [text for words, text in blocks("sh") if words == program]
    lines = [line.split("  #", 1)[0].strip() for text in texts for line in text.splitlines()]
    return [line for line in lines if line]


def written(language: str, folder: Path, fill: Callable[[str], str]) -> None:
    """Write the files that the page prints in a language."""
    for words, text in blocks(language):
        if words.startswith("file="):
            (folder / words.removeprefix("file=")).write_text(fill(text))


def test_every_command_of_the_page_works(rides: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    monkeypatch.chdir(rides.folder)
    verbs = []
    for command in commands():
        program, verb, *arguments = shlex.split(command)
        target = None
        if ">" in arguments:
            *arguments, _, target = arguments
        assert program == "privstream"
        done = invoked(verb, *arguments)
        assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception}"
        if target is not None:
            Path(target).write_text(done.stdout)
        verbs.append(verb)
    assert {"export", "query"} == set(verbs)
    assert pa_parquet.read_table("rides.geo.parquet").num_rows == len(rides.rows)
    table = pl.read_csv("rides.csv")
    assert len(table) == len(rides.rows)
    assert table["lon"].is_between(13.0, 14.0).all()


def python(program: str, *arguments: object, cwd: Path, **environment: str) -> str:
    """In a process of its own, as a person runs it."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_duckdb_table_follows_and_goes_on(rides: Any, tmp_path: Path) -> None:
    import polars as pl

    written("python", tmp_path, rides.fill)
    [program] = [text for words, text in blocks("python") if not words]
    kept = '\ndb.sql("select * from rides").pl().write_parquet("rows.parquet")'
    for _ in range(2):  # the second time nothing is new
        python(rides.fill(program) + kept, cwd=tmp_path)
        found = {row[0]: row[2:] for row in pl.read_parquet(tmp_path / "rows.parquet").rows()}
        assert found == {key: (record["lon"], record["lat"]) for key, record in rides.rows.items()}


@pytest.mark.nightly
@pytest.mark.seconds(120)
def test_spark_makes_the_same_table_in_batch_and_as_a_stream(rides: Any, tmp_path: Path) -> None:
    """With `spark-submit` as printed, in an environment of its own; the stream goes on where it was."""
    import polars as pl

    for language in ("python", "sql"):
        written(language, tmp_path, rides.fill)
    batch, stream = commands("spark")
    for command in (batch, stream, stream):
        spark(command, tmp_path)
    expected = {key: (record["lon"], record["lat"]) for key, record in rides.rows.items()}
    assert {row[0]: row[1:] for row in pl.read_parquet(tmp_path / "rides" / "*.parquet").rows()} == expected
    assert delta_rows(tmp_path / "rides_table") == expected


def spark(command: str, folder: Path) -> None:
    """Run a line with `spark-submit` in a folder."""
    bin_folder = environment("recipes").parent
    place = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    place |= {"PYSPARK_PYTHON": str(bin_folder / "python"), "SPARK_CONF_DIR": str(folder)}
    (folder / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\nspark.sql.shuffle.partitions 2\nspark.sql.session.timeZone UTC\n"
    )
    done = subprocess.run(shlex.split(command), env=place, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]


def delta_rows(folder: Path) -> dict[str, tuple[float, ...]]:
    """The rows of a small Delta table: of the files that its log has added, and not removed."""
    import polars as pl

    alive: dict[str, None] = {}
    for log in sorted((folder / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            match json.loads(line):
                case {"add": {"path": path, **more}}:
                    assert not more.get("deletionVector")
                    alive[path] = None
                case {"remove": {"path": path}}:
                    del alive[path]
    return {row[0]: row[1:] for path in alive for row in pl.read_parquet(folder / path).rows()}


def run_connect(folder: Path, command: str, plugins: Sequence[Path], arrived: Callable[[], bool]) -> None:
    """A worker of Kafka Connect with one connector, until what is on the topic has arrived."""
    with free_ports(1) as [port], (folder / "worker.properties").open("a") as worker:
        worker.write(f"listeners=http://127.0.0.1:{port}\n")  # of its own interface
    (folder / "plugins").mkdir()
    for plugin in plugins:
        (folder / "plugins" / plugin.name).symlink_to(plugin)
    script, *files = shlex.split(command)
    assert script == "connect-standalone.sh"
    java = [str(java_binary()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars(pinned=CONNECT)]
    log = folder / "connect.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*java, "org.apache.kafka.connect.cli.ConnectStandalone", *files], cwd=folder, stdout=said, stderr=said
        )
    try:
        end = time.monotonic() + WAIT_AT_MOST_S
        while not arrived():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
@pytest.mark.seconds(20)
def test_a_file_sink_writes_every_entry_of_a_ledger(rides: Any, tmp_path: Path) -> None:
    written("properties", tmp_path, rides.fill)
    bootstrap, topic = rides.config.kafka.bootstrap, Topics.ledger(rides.config.streams[0].name)
    entries = [record.value.decode() for record in asyncio.run(records_of(bootstrap, topic))]
    out = tmp_path / "ledger.jsonl"
    _, command = commands("connect")
    plugins = [path for path in map(Path, jars(pinned=CONNECT).split(os.pathsep)) if path.name in PAGE]
    run_connect(tmp_path, command, plugins, lambda: out.exists() and len(out.read_text().splitlines()) >= len(entries))
    assert out.read_text().splitlines() == entries


@contextmanager
def postgres() -> Iterator[tuple[int, Callable[[str], str]]]:
    """A server of its own. Yields its port, and what answers a query with CSV."""
    programs = next(environment("recipes").parents[1].glob(f"lib/python*/site-packages/*/pginstall{POSTGRES}/bin"))
    with free_ports(1) as [port]:
        pass
    with tempfile.TemporaryDirectory(prefix="privstream-postgres-") as folder:
        user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
        if user is not None:
            shutil.chown(folder, user)
        place = f"{folder}/data"
        made = [f"{programs}/initdb", "-D", place, "-U", "me", "--auth=trust", "--encoding=utf8", "--no-sync"]
        subprocess.run(made, user=user, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        served = [f"{programs}/postgres", "-D", place, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        server = subprocess.Popen(served, user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def ask(query: str) -> str:
            asked = [f"{programs}/psql", f"postgresql://me@127.0.0.1:{port}/postgres", "-t", "--csv", "-c", query]
            return subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False).stdout

        try:
            while not ask("SELECT 1"):
                assert server.poll() is None
                time.sleep(0.2)
            yield port, ask
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


@pytest.mark.nightly
@pytest.mark.seconds(40)
def test_a_jdbc_sink_keeps_a_table_in_which_tombstones_delete(rides: Any, tmp_path: Path) -> None:
    command, _ = commands("connect")
    expected = {key: (record["at"], record["lon"], record["lat"]) for key, record in rides.rows.items()}
    plugins = [kept(DEBEZIUM_JDBC, DEBEZIUM_JDBC_SHA256)]
    with postgres() as (port, ask):
        written("properties", tmp_path, lambda text: rides.fill(text).replace("localhost:5432", f"127.0.0.1:{port}"))

        def table() -> dict[str, tuple[Any, ...]]:
            rows = csv.reader(ask("SELECT synthetic_id, at, lon, lat FROM rides").splitlines())
            return {key: (at, float(lon), float(lat)) for key, at, lon, lat in rows}

        run_connect(tmp_path, command, plugins, lambda: table() == expected)


@pytest.mark.nightly
@pytest.mark.seconds(60)
def test_flink_follows_adds_and_tombstones(rides: Any, tmp_path: Path) -> None:
    """With what `sql-client.sh` of a distribution runs: PyPI has its jars, but not that script."""
    flink = next(environment("recipes").parents[1].glob("lib/python*/site-packages/pyflink"))
    class_path = f"{flink}/lib/*:{flink}/opt/*:{kept(FLINK_GATEWAY, FLINK_GATEWAY_SHA256)}"
    script = tmp_path / "sql-client.sh"
    script.write_text(
        f'#!/bin/sh\nexec java -Duser.home={tmp_path} -cp "{class_path}" org.apache.flink.table.client.SqlClient "$@"\n'
    )
    script.chmod(0o755)
    (tmp_path / "config.yaml").write_text("parallelism.default: 1\n")
    connector = kept(FLINK_KAFKA, FLINK_KAFKA_SHA256)
    (tmp_path / connector.name).symlink_to(connector)
    written("sql", tmp_path, rides.fill)
    [command] = commands("flink")
    place = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "FLINK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(shlex.split(command), env=place, cwd=tmp_path, capture_output=True, text=True, check=False)
    changes = re.findall(r"^\| ([+-][IUD]) \| +(\S+) \| +(\S+) \| +(\S+) \|$", done.stdout, re.MULTILINE)
    found: dict[str, tuple[float, float]] = {}
    for change, key, lon, lat in changes:
        if change == "-D":
            del found[key]
        else:
            found[key] = (float(lon), float(lat))
    assert found == {key: (record["lon"], record["lat"]) for key, record in rides.rows.items()}, done.stdout[-5000:]
    assert {change for change, *_ in changes} == {"+I", "-D"}


@pytest.mark.seconds(6)
def test_the_notebook_makes_the_same_table(rides: Any, tmp_path: Path) -> None:
    # Its client drops without an error what a cell prints later than `iopub_timeout` after its end, 4 s by default.
    import polars as pl

    program = (
        "import nbclient, nbformat, sys; notebook = nbformat.read(sys.argv[1], 4); "
        "nbclient.NotebookClient("
        "notebook, timeout=120, iopub_timeout=120, raise_on_iopub_timeout=True, kernel_name='python3').execute(); "
        "nbformat.write(notebook, sys.argv[2])"
    )
    out = tmp_path / "synthetic.parquet"
    place = {"BOOTSTRAP": rides.config.kafka.bootstrap, "TOPIC": rides.topic, "OUT": str(out)}
    python(program, NOTEBOOK, tmp_path / "run.ipynb", cwd=tmp_path, **place)
    frame = pl.read_parquet(out)
    assert dict(zip(frame["synthetic_id"], frame["lon"], strict=True)) == {
        key: record["lon"] for key, record in rides.rows.items()
    }
    cells = [cell for cell in json.loads((tmp_path / "run.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    printed = "".join(text for output in cells[1]["outputs"] for text in output["data"]["text/plain"])
    assert printed == repr(f"{len(rides.rows):,} rows are alive after step {STEPS - 1}")


def test_sql_of_other_programs_parses(tmp_path: Path) -> None:
    """That of Spark is also run: by DuckDB in its place, on records that are like those of a topic."""
    import sqlglot
    from sqlglot import exp

    flink, spark = (text for _, text in blocks("sql"))
    assert [type(each) for each in sqlglot.parse(flink, dialect="spark")] == [exp.Create, exp.Select]
    reads = "FROM_JSON(CAST(value AS STRING), 'at STRING, lon DOUBLE, lat DOUBLE')"
    assert reads in spark
    (same,) = sqlglot.transpile(spark.replace(reads, "value"), "spark", "duckdb")
    program = """
import duckdb, polars as pl, sys
rows = [{"lon": "1", "lat": "2"}, {"lon": "3", "lat": "4"}, {"lon": "5", "lat": "6"}, {"lon": "7", "lat": "8"}, None]
rides_topic = pl.DataFrame({"key": ["a", "b", "a", "c", "c"], "value": rows, "offset": range(5)})
print(sorted(duckdb.sql(sys.argv[1]).fetchall()))
"""
    assert python(program, same, cwd=tmp_path).strip() == "[('a', 5.0, 6.0), ('b', 3.0, 4.0)]"


def test_the_page_states_the_versions_that_are_run() -> None:
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "requirements" / "recipes.in").read_text(), re.MULTILINE))
    [delta] = set(re.findall(r"io\.delta:delta-spark_2\.13:([\d.]+)", PAGE))
    assert f"with Spark {pinned['pyspark']} and Delta Lake {delta} on Java 17" in PAGE
    assert FLINK_GATEWAY.endswith(f":{pinned['apache-flink-libraries']}")
    assert f"with Flink {pinned['apache-flink-libraries']} on Java 17" in PAGE
    debezium = DEBEZIUM_JDBC.split(":")[2]
    assert f"with Kafka {kafka_version(CONNECT)}, Debezium {debezium} and PostgreSQL {POSTGRES}" in PAGE
    assert f"`debezium-connector-jdbc-{debezium}-plugin.tar.gz`" in PAGE
    assert f"`{'-'.join(APICURIO_CONVERTER.split(':')[1:3])}.tar.gz`" in PAGE
    assert f"`connect-file-{kafka_version(CONNECT)}.jar`" in PAGE
    assert f"--jar {'-'.join(FLINK_KAFKA.split(':')[1:])}.jar" in PAGE


def test_the_page_and_the_notebook_are_plain() -> None:
    """No outputs are kept in the notebook: they would be somebody's data."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
