"""`BROKER=container`: what is asked of a Docker engine, by a fake one, and what is said where there is none."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from agents.local.broker.embedded import PROPERTIES
from agents.local.broker.jars import LINE_VARIABLE
from schemas.errors import BrokerError
from tests import conftest, containers
from tests.containers import IMAGE_VARIABLE, VARIABLE, recipe, suite_broker

NO_WORKER = cast(pytest.Config, SimpleNamespace())


class Engine(BaseHTTPRequestHandler):
    """Says yes to everything, and keeps what it was asked."""

    asked: ClassVar[list[tuple[str, str, Any]]] = []

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0].removeprefix("/v1.44")
        self.asked.append((self.command, path, json.loads(body) if body else None))
        said = {"ApiVersion": "1.44", "Id": "c1", "Config": {"Tty": True}, "State": {"Status": "running"}}
        content = b"" if path.endswith("/logs") else json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

    def address_string(self) -> str:
        return "a socket"

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Engine]]:
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "engine"), Engine) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'engine'}")
        monkeypatch.setenv(VARIABLE, "container")
        from testcontainers.core.config import testcontainers_config

        monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
        Engine.asked.clear()
        yield Engine
        server.shutdown()
        thread.join()


def test_what_is_asked_of_the_engine_for_each_turn_of_a_brokers_life(
    engine: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LINE_VARIABLE, "3.9")
    monkeypatch.setattr(containers, "listening", lambda port: True)
    monkeypatch.setattr(containers, "answers", lambda bootstrap: True)
    conftest.pytest_configure(NO_WORKER)
    with suite_broker() as broker:
        port = int(broker.bootstrap.removeprefix("127.0.0.1:"))
        broker.pause()
        broker.resume()
        broker.kill()
        broker.start()
    [made] = [said for _, path, said in engine.asked if path == "/containers/create"]
    assert made["Image"].startswith("apache/kafka:3.9.")
    assert sorted(made["Env"]) == sorted(f"{k}={v}" for k, v in recipe(made["Image"], port).environment.items())
    assert made["HostConfig"]["PortBindings"] == {f"{port}/tcp": [{"HostIp": "", "HostPort": str(port)}]}
    turns = [(verb, path) for verb, path, _ in engine.asked if path.startswith("/containers/c1") and verb != "GET"]
    assert turns == [
        *(("POST", f"/containers/c1/{turn}") for turn in ("start", "pause", "unpause", "kill", "start")),
        ("DELETE", "/containers/c1"),
    ]


def test_a_broker_that_never_answers_is_removed(engine: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "START_S", 0.0)
    monkeypatch.setattr(containers, "listening", lambda port: False)
    monkeypatch.setenv(IMAGE_VARIABLE, "redpandadata/redpanda:v25.1.1")
    with pytest.raises(BrokerError, match=r"redpanda:v25\.1\.1 did not answer"):
        suite_broker().start()
    [made] = [said for _, path, said in engine.asked if path == "/containers/create"]
    assert made["Cmd"][:2] == ["redpanda", "start"]
    assert engine.asked[-1][:2] == ("DELETE", "/containers/c1")


def test_kafka_in_a_container_has_the_settings_of_the_embedded_one() -> None:
    environment = recipe("apache/kafka:4.0.2", 21_000).environment
    assert not {"_", "-"} & set("".join(PROPERTIES)), "the image writes these in another way"
    assert (
        PROPERTIES.items()
        <= {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}.items()
    )
    assert environment["KAFKA_LISTENERS"] == "PLAINTEXT://0.0.0.0:21000,CONTROLLER://127.0.0.1:9093"
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:21000"
    assert len(environment["CLUSTER_ID"]) == 22


def test_redpanda_listens_where_it_is_reached_and_makes_no_topics() -> None:
    command = recipe("redpandadata/redpanda@sha256:0", 21_000).command
    assert command[command.index("--kafka-addr") + 1] == "PLAINTEXT://0.0.0.0:21000"
    assert command[command.index("--advertise-kafka-addr") + 1] == "PLAINTEXT://127.0.0.1:21000"
    assert "--mode" not in command


@pytest.mark.parametrize(
    ("kind", "image", "said"),
    [
        ("container", "", r"no Docker engine answers\. Fix: start one .* or unset BROKER"),
        ("container", "confluentinc/cp-kafka:8.0.0", r"BROKER_IMAGE names confluentinc/cp-kafka\. Fix: "),
        ("docker", "", r'neither "container" nor unset\. Fix: '),
    ],
)
def test_a_broker_that_cannot_be_had_is_refused_before_any_test(
    kind: str, image: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody'}")
    monkeypatch.setenv(VARIABLE, kind)
    monkeypatch.setenv(IMAGE_VARIABLE, image)
    with pytest.raises(pytest.UsageError, match=said):
        conftest.pytest_configure(NO_WORKER)


def test_processes_of_a_run_and_the_embedded_broker_ask_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "docker")
    conftest.pytest_configure(cast(pytest.Config, SimpleNamespace(workerinput={})))
    monkeypatch.delenv(VARIABLE)
    conftest.pytest_configure(NO_WORKER)
