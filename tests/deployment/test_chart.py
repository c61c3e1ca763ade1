"""The Helm chart renders to what Kubernetes takes, and a pod of it runs the job as it should: private, least rights."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from schemas.config import load_config
from schemas.config.server import JobSection, Kafka
from schemas.config.values import Section
from tests.deployment.tools import ALERTS, BOARD, CHART, DEPLOY, ROOT, built, run

pytestmark = pytest.mark.seconds(1)

VALUES = DEPLOY / "chart-check" / "values"
LEAST, MOST, EMPTYDIR = (VALUES / f"{name}.yaml" for name in ("least", "most", "emptydir"))
USER = 10001
Object = dict[str, Any]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("chart-check", tmp_path_factory.mktemp("chart-check"))


def objects(program: Path, *values: Path) -> dict[str, Object]:
    """Kind -> object; of two ConfigMaps the job's own."""
    rendered = run(program, CHART, *values)
    assert rendered.returncode == 0, rendered.stderr
    found: dict[str, Object] = {}
    for each in json.loads(rendered.stdout):
        kind = "Dashboard" if each["metadata"]["name"].endswith("-dashboard") else each["kind"]
        assert kind not in found
        found[kind] = each
    return found


@pytest.fixture(scope="module")
def least(program: Path) -> dict[str, Object]:
    return objects(program, LEAST)


@pytest.fixture(scope="module")
def most(program: Path) -> dict[str, Object]:
    return objects(program, LEAST, MOST)


@pytest.fixture(scope="module", params=["least", "most", "emptydir"])
def each(request: pytest.FixtureRequest, program: Path) -> dict[str, Object]:
    return objects(program, *{"least": [LEAST], "most": [LEAST, MOST], "emptydir": [LEAST, EMPTYDIR]}[request.param])


def pod(found: dict[str, Object]) -> Object:
    spec: Object = found["StatefulSet"]["spec"]["template"]["spec"]
    return spec


def containers(found: dict[str, Object]) -> list[Object]:
    return [*pod(found).get("initContainers", []), *pod(found)["containers"]]


def test_what_is_there_follows_the_values(program: Path, least: dict[str, Object], most: dict[str, Object]) -> None:
    base = {"ConfigMap", "Service", "StatefulSet"}
    guarded = base | {"PodDisruptionBudget", "NetworkPolicy", "ServiceAccount"}
    assert set(objects(program, LEAST, EMPTYDIR)) == base
    assert set(least) == guarded
    assert set(most) == guarded | {"ServiceMonitor", "PrometheusRule", "Dashboard"}


def test_every_object_has_the_recommended_labels(each: dict[str, Object]) -> None:
    for made in each.values():
        names = {name.removeprefix("app.kubernetes.io/") for name in made["metadata"]["labels"]}
        assert names >= {"name", "instance", "version", "component", "part-of", "managed-by"}


def test_every_selector_finds_the_pods(each: dict[str, Object]) -> None:
    labels = each["StatefulSet"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = {
        "StatefulSet": lambda spec: spec["selector"]["matchLabels"],
        "Service": lambda spec: spec["selector"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
    }
    for kind, selector in selectors.items():
        if kind in each:
            chosen = selector(each[kind]["spec"])
            assert chosen
            assert chosen.items() <= labels
    assert each["StatefulSet"]["spec"]["serviceName"] == each["Service"]["metadata"]["name"]
    if "ServiceMonitor" in each:
        chosen = each["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
        assert chosen.items() <= each["Service"]["metadata"]["labels"].items()


def test_no_container_has_more_rights_than_it_needs(each: dict[str, Object]) -> None:
    spec = pod(each)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in containers(each):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"\nUSER {USER}\n" in image
    # A folder that the image declares is a volume of its own wherever nothing is mounted at that very path.
    places = {mount["mountPath"] for mount in containers(each)[-1]["volumeMounts"]}
    assert image.split("\nVOLUME ", 1)[1].split("\n", 1)[0] in places


def test_every_mount_has_its_volume(each: dict[str, Object]) -> None:
    spec = each["StatefulSet"]["spec"]
    claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    volumes = {volume["name"] for volume in pod(each)["volumes"]}
    assert not claims & volumes
    for container in containers(each):
        assert {mount["name"] for mount in container["volumeMounts"]} <= claims | volumes


def test_the_probes_ask_what_a_worker_answers(each: dict[str, Object]) -> None:
    worker = containers(each)[-1]
    (port,) = worker["ports"]
    asked = {name: worker[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["httpGet"]["path"] for name, probe in asked.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert all(probe["httpGet"]["port"] == port["name"] for probe in asked.values())
    assert (asked["liveness"]["failureThreshold"], asked["liveness"]["periodSeconds"]) == (3, 10)
    assert pod(each)["terminationGracePeriodSeconds"] > 10
    environment = {entry["name"]: entry["value"] for entry in worker["env"]}
    assert environment["PRIVSTREAM_JOB__HTTP_PORT"] == str(port["containerPort"])
    (served,) = each["Service"]["spec"]["ports"]
    assert served["targetPort"] == port["name"]


@pytest.mark.parametrize(
    ("values", "bootstrap"), [([LEAST], "kafka-0.kafka:9092,kafka-1.kafka:9092"), ([LEAST, MOST], "kafka-0.kafka:9093")]
)
def test_the_job_takes_the_configuration_that_a_pod_has(
    program: Path, tmp_path: Path, values: list[Path], bootstrap: str
) -> None:
    found = objects(program, *values)
    file = tmp_path / "job.toml"
    file.write_text(found["ConfigMap"]["data"]["job.toml"], encoding="utf-8")
    for container in containers(found):
        assert container["args"][1] == "/etc/privstream/job.toml"
        config = load_config(file, {entry["name"]: entry["value"] for entry in container["env"]})
        assert config.kafka.bootstrap == bootstrap
        assert config.job.http_host == "0.0.0.0"
        assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {
            str(config.job.data_dir),
            "/etc/privstream",
        }


def test_secrets_are_files_by_reference(least: dict[str, Object], most: dict[str, Object]) -> None:
    assert all(volume["name"] != "secrets" for volume in pod(least)["volumes"])
    (volume,) = [volume for volume in pod(most)["volumes"] if volume["name"] == "secrets"]
    assert volume["projected"]["defaultMode"] == 0o400
    files = {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert files == {
        "userKey": ("privstream-user-key", "user.key"),
        "kafkaPassword": ("privstream-kafka", "password"),
        "kafkaCa": ("kafka-ca", "ca.crt"),
        "registryPassword": ("registry", "password"),
        "registryCa": ("registry", "ca.crt"),
        "witnessHeaders": ("witness", "headers"),
    }
    for container in containers(most):
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "secrets"]
        assert mount["readOnly"] is True
        named = {entry["value"] for entry in container["env"] if entry["value"].startswith(mount["mountPath"])}
        assert named == {f"{mount['mountPath']}/{path}" for path in files}
        assert all("valueFrom" not in entry for entry in container["env"])


def files_of(model: type[Section], variable: str) -> set[str]:
    """Variables of all keys that name a file of their own."""
    found = set()
    for name, field in model.model_fields.items():
        below = f"{variable}__{name.upper()}"
        for kind in (field.annotation, *get_args(field.annotation)):
            if kind is Path:
                found.add(below)
            elif isinstance(kind, type) and issubclass(kind, Section):
                found |= files_of(kind, below)
    return found


def test_there_is_a_secret_for_each_file_that_the_job_and_the_cluster_name() -> None:
    """Also for one that is new: a chart without it has no way to give it to a pod."""
    helpers = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    secrets = dict(re.findall(r"^(\w+): (PRIVSTREAM_\w+)$", helpers, re.MULTILINE))
    wanted = files_of(JobSection, "PRIVSTREAM_JOB") | files_of(Kafka, "PRIVSTREAM_KAFKA")
    assert "PRIVSTREAM_KAFKA__REGISTRY__PASSWORD_FILE" in wanted
    assert set(secrets.values()) == {*wanted, "PRIVSTREAM_USER_KEY_FILE"} - {"PRIVSTREAM_JOB__DATA_DIR"}
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]["secrets"]["properties"]) == secrets.keys()
    values = (CHART / "values.yaml").read_text(encoding="utf-8").split("\nsecrets:\n", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"^  (\w+): ", values, re.MULTILINE)) == secrets.keys()
    (row,) = re.findall(r"^\| `secrets\.\*` .*$", (CHART / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == secrets.keys()


def test_what_a_pod_has_seen_answered_outlives_it(least: dict[str, Object], most: dict[str, Object]) -> None:
    policy = least["StatefulSet"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    for container in containers(most):
        assert container["envFrom"] == [{"secretRef": {"name": "witness-bucket"}}]


def test_metrics_are_reached_from_the_named_namespace_only(most: dict[str, Object]) -> None:
    spec = most["NetworkPolicy"]["spec"]
    assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
    (ingress,) = spec["ingress"]
    assert ingress["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert [port["port"] for port in ingress["ports"]] == ["http"]
    names, kafka, registry, witness = spec["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert [port["port"] for port in kafka["ports"]] == [9093, 9094]
    assert kafka["to"]
    assert [port["port"] for port in registry["ports"]] == [8081]
    assert registry["to"]
    assert [port["port"] for port in witness["ports"]] == [443]
    assert witness["to"]


def test_nothing_is_pushed_unless_a_port_is_named(least: dict[str, Object]) -> None:
    names, kafka = least["NetworkPolicy"]["spec"]["egress"]
    assert {port["port"] for rule in (names, kafka) for port in rule["ports"]} == {53, 9092}


ELSEWHERE = "config: ''\nexistingConfigMap: mine\nbootstrap: a.example:9093,b.example:9094,c.example:9093\n"


def with_values(program: Path, folder: Path, text: str) -> dict[str, Object]:
    file = folder / "values.yaml"
    file.write_text(text, encoding="utf-8")
    return objects(program, LEAST, file)


def test_what_a_platform_or_an_autoscaler_owns_is_left_to_it(program: Path, tmp_path: Path) -> None:
    text = "replicas: null\npodSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: 2000}\n"
    found = with_values(program, tmp_path, text)
    assert "replicas" not in found["StatefulSet"]["spec"]
    rights = pod(found)["securityContext"]
    assert not {"runAsUser", "runAsGroup"} & set(rights)
    assert (rights["fsGroup"], rights["runAsNonRoot"]) == (2000, True)
    assert with_values(program, tmp_path, "replicas: 0")["StatefulSet"]["spec"]["replicas"] == 0


def test_a_configuration_that_is_there_already_is_mounted(program: Path, tmp_path: Path) -> None:
    found = with_values(program, tmp_path, ELSEWHERE)
    assert "ConfigMap" not in found
    (volume,) = [volume for volume in pod(found)["volumes"] if volume["name"] == "config"]
    assert volume["configMap"] == {"name": "mine"}
    _, kafka = found["NetworkPolicy"]["spec"]["egress"]
    assert [port["port"] for port in kafka["ports"]] == [9093, 9094]


def test_image_account_and_priority_are_those_of_the_values(least: dict[str, Object], most: dict[str, Object]) -> None:
    assert {container["image"] for container in containers(least)} == {"privstream:0.1.0"}
    assert {container["image"] for container in containers(most)} == {
        f"registry.example/privstream@sha256:{'0123456789abcdef' * 4}"
    }
    assert pod(most)["priorityClassName"] == "high"
    for found, name in ((least, "trips-privstream"), (most, "private")):
        assert pod(found)["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"] == name
        assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    assert most["ServiceAccount"]["metadata"]["annotations"] == {"example.org/role": "witness"}


def test_rules_and_board_are_those_of_the_files(most: dict[str, Object]) -> None:
    assert json.loads(most["Dashboard"]["data"]["privstream.json"]) == json.loads(BOARD.read_text(encoding="utf-8"))
    rules = [rule for group in most["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]]
    assert len(rules) == ALERTS.read_text(encoding="utf-8").count("- alert: ")
    begins = "https://docs.example/privstream/operations.md#privstream"
    assert all(rule["annotations"]["runbook_url"].startswith(begins) for rule in rules)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "reason"),
    [
        ("templates/statefulset.yaml", "livenessProbe:", "livenesProbe:", "livenesProbe"),
        ("templates/statefulset.yaml", "failureThreshold: 3\n", "failureThreshold: three\n", "failureThreshold"),
        (
            "templates/statefulset.yaml",
            "replicas: {{ .Values.replicas",
            "replicas: {{ .Values.replica",
            "nil pointer|replica",
        ),
        ("templates/servicemonitor.yaml", "interval:", "intervall:", "intervall"),
        ("templates/networkpolicy.yaml", "policyTypes:", "policyType:", "policyType"),
        ("templates/_helpers.tpl", "imagePullPolicy", "imagePullPolice", "imagePullPolice"),
        ("values.yaml", "readOnlyRootFilesystem", "readOnlyRoot", "readOnlyRoot"),
        ("templates/service.yaml", "- name: http", "-name: http", "service.yaml"),
        ("values.yaml", "httpPort: 9464", "httpPorts: 9464", "httpPorts"),
        ("files/alerts.yaml", "        for: 2m", "        until: 2m", "until"),
        ("Chart.yaml", "version: 0.1.0\nappVersion", "version: one\nappVersion", "version"),
    ],
)
def test_a_planted_mistake_is_found(
    program: Path, tmp_path: Path, file: str, right: str, wrong: str, reason: str
) -> None:
    chart = tmp_path / "privstream"
    shutil.copytree(CHART, chart)
    text = (chart / file).read_text(encoding="utf-8")
    assert right in text
    (chart / file).write_text(text.replace(right, wrong), encoding="utf-8")
    rendered = run(program, chart, LEAST, MOST)
    assert rendered.returncode == 1, rendered.stdout
    assert any(each in rendered.stderr for each in reason.split("|"))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("replica: 2", "replica"),
        ("secrets: {userKey: {name: k, key: ''}}", "secrets.userKey.key"),
        ("httpPort: 80", "httpPort"),
        ("env: {A: 1}", "/env/A"),
        ("config: ''", "Fix: --set-file config=job.toml"),
        ("config: '[job'", "config: it is no TOML"),
        ("config: '[job]'", "config: there is no stream"),
        ("config: '[[streams]]'", "config: [kafka] has no bootstrap"),
        ("bootstrap: kafka", "has no port"),
        (
            'config: "[[streams]]\\nname = \\"t\\"\\nprivacy.unit = \\"user\\""\nbootstrap: k:9092',
            "secrets.userKey.name: stream t",
        ),
        ("existingConfigMap: mine", "existingConfigMap: the job is in config"),
        ("config: ''\nexistingConfigMap: mine", "networkPolicy.kafkaPorts"),
        ("image: {digest: latest}", "digest"),
        ("podSecurityContext: {runAsuser: 1}", "runAsuser"),
        ("securityContext: {fsGroup: 1}", "fsGroup"),
        ("resources: {request: {}}", "request"),
        ("serviceAccount: {annotation: {}}", "annotation"),
        ("networkPolicy: {monitoringNamespaceLabels: []}", "monitoringNamespaceLabels"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(program: Path, tmp_path: Path, values: str, reason: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values, encoding="utf-8")
    rendered = run(program, CHART, LEAST, file)
    assert rendered.returncode == 1
    assert reason in rendered.stderr
