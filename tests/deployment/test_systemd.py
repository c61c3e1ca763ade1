"""The unit is one that systemd reads without a complaint; it starts again after a crash, and not after a refusal."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agents.cli.output import REFUSED
from agents.kafka.lifecycle.leaving import LIMIT_S
from schemas.config import load_config
from tests.deployment.tools import DEPLOY, ROOT
from tests.missing import missing

UNIT = DEPLOY / "systemd" / "privstream.service"
SECRETS = DEPLOY / "systemd" / "privstream.service.d" / "secrets.conf"


class _Unit(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def service(text: str) -> configparser.SectionProxy:
    unit = _Unit(strict=False, interpolation=None)
    unit.read_string(text)
    return unit["Service"]


def environment(*files: Path) -> dict[str, str]:
    """Of all `Environment=` lines; specifiers as systemd would fill them in."""
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    words = " ".join(line.removeprefix("Environment=") for line in lines if line.startswith("Environment="))
    filled = words.replace("%S", "/var/lib").replace("%d", "/run/credentials/privstream.service")
    return dict(word.split("=", 1) for word in filled.split())


def test_it_comes_again_after_a_crash_and_not_after_a_refusal() -> None:
    unit = service(UNIT.read_text(encoding="utf-8"))
    assert unit["Restart"] == "on-failure"
    assert unit["RestartPreventExitStatus"] == str(REFUSED)
    assert float(unit["TimeoutStopSec"]) > LIMIT_S + 1
    assert (unit["DynamicUser"], unit["ProtectSystem"], unit["StateDirectoryMode"]) == ("yes", "strict", "0700")


def test_the_job_takes_what_the_unit_sets(tmp_path: Path) -> None:
    example = (ROOT / "deploy" / "compose" / "privstream.toml").read_text(encoding="utf-8")
    config = load_config(ROOT / "deploy" / "compose" / "privstream.toml", environment(UNIT))
    unit = service(UNIT.read_text(encoding="utf-8"))
    assert str(config.job.data_dir) == f"/var/lib/{unit['StateDirectory']}"
    assert config.job.http_port == 9464
    secured = tmp_path / "job.toml"
    security = '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "privstream"\n'
    assert "[kafka]\n" in example
    secured.write_text(example.replace("[kafka]\n", security), encoding="utf-8")
    config = load_config(secured, environment(UNIT, SECRETS))
    held = set(re.findall(r"^LoadCredential=([\w-]+):", SECRETS.read_text(encoding="utf-8"), re.MULTILINE))
    assert config.kafka.sasl_password_file is not None
    assert config.kafka.sasl_password_file.name in held
    assert Path(environment(SECRETS)["PRIVSTREAM_USER_KEY_FILE"]).name in held


def test_the_job_takes_the_secrets_that_are_there_to_be_uncommented(tmp_path: Path) -> None:
    drop_in = tmp_path / SECRETS.name
    drop_in.write_text(re.sub(r"^#(?=[A-Z]\w+=)", "", SECRETS.read_text(encoding="utf-8"), flags=re.MULTILINE))
    example = (ROOT / "deploy" / "compose" / "privstream.toml").read_text(encoding="utf-8")
    security = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "privstream"\n'
    registry = '[kafka.registry]\nurl = "https://registry:8081"\nusername = "privstream"\n'
    secured = tmp_path / "job.toml"
    secured.write_text(
        example.replace("[kafka]\n", f"[kafka]\n{security}").replace("[[streams]]", f"{registry}\n[[streams]]", 1),
        encoding="utf-8",
    )
    config = load_config(secured, environment(UNIT, drop_in))
    held = re.findall(r"^LoadCredential=([\w-]+):", drop_in.read_text(encoding="utf-8"), re.MULTILINE)
    assert config.kafka.registry is not None
    files = config.kafka.sasl_password_file, config.kafka.registry.password_file
    assert held == ["user-key", *(str(file and file.name) for file in files)]


def complaints(folder: Path, right: str = "", wrong: str = "") -> str:
    """What systemd says of the unit, with the program's place replaced by one that is there."""
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        missing("the unit is read by systemd-analyze")
    text = UNIT.read_text(encoding="utf-8")
    assert right in text
    there = str(shutil.which("true"))
    (folder / UNIT.name).write_text(
        text.replace("/opt/privstream/bin/privstream", there).replace(right, wrong)
        if right
        else text.replace("/opt/privstream/bin/privstream", there),
        encoding="utf-8",
    )
    shutil.copytree(SECRETS.parent, folder / SECRETS.parent.name)
    said = subprocess.run([systemd, "verify", str(folder / UNIT.name)], capture_output=True, text=True, check=False)
    return said.stdout + said.stderr + ("" if said.returncode == 0 else f"exit code {said.returncode}")


def test_systemd_has_nothing_to_complain_of(tmp_path: Path) -> None:
    assert complaints(tmp_path) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("RestartSec=10", "RestartSecs=10"), ("ProtectSystem=strict", "ProtectSystem=all"), ("Type=exec", "Type=runs")],
)
def test_systemd_finds_a_planted_mistake(tmp_path: Path, right: str, wrong: str) -> None:
    assert complaints(tmp_path, right, wrong)
