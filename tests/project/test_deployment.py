"""The tools that will read deploy/ check its files, as far as they run without a cluster."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kctl.config.load import load
from kctl.exporter import METRICS
from kctl.rows.advice import Advice
from tests.prometheus import require

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
KUSTOMIZED = tuple(DEPLOY / "kubernetes" / name for name in ("base", "hosts", "keda", "hpa"))
MANIFESTS = sorted(path for folder in KUSTOMIZED for path in folder.glob("*.yaml") if path.stem != "kustomization")
OF_OTHERS = {"servicemonitor", "scaledobject", "triggerauthentication"}  # outside Kubernetes' schemas: deploy/README.md
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def manifest(name: str, folder: str = "base") -> Any:
    return yaml.safe_load((DEPLOY / "kubernetes" / folder / f"{name}.yaml").read_text())


def versions(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE))


@pytest.mark.shows("compose file, manifests, systemd unit and routes are valid")
def test_the_compose_file_follows_its_schema_and_opens_no_port_to_the_network() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]

    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.shows("images from elsewhere are pinned by version and digest")
def test_an_image_that_is_not_ours_has_a_version_and_a_digest() -> None:
    images = [service["image"] for service in COMPOSE["services"].values()]
    built_from = re.findall(r"^FROM (\S+)", (DEPLOY / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    others = [image for image in (*images, *built_from) if not image.startswith("kctl:")]
    assert len(others) > 6
    for image in others:
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+[a-z-]*@sha256:[0-9a-f]{64}", image)


def test_an_alert_goes_to_its_receiver_and_every_one_that_silences_or_is_silenced_exists() -> None:
    [amtool] = require("amtool")
    file = DEPLOY / "alertmanager" / "alertmanager.yml"
    alerts = re.findall(r"alert: (\w+)", (DEPLOY / "prometheus" / "kctl.rules.yml").read_text())

    run(amtool, "check-config", file)
    for severity, receiver in (("critical", "on-call"), ("warning", "team")):
        routed = run(amtool, "config", "routes", "test", f"--config.file={file}", f"severity={severity}")
        assert routed.split() == [receiver]
    for pattern in re.findall(r'alertname=~?"([^"]+)"', file.read_text()):
        for name in pattern.split("|"):
            assert any(re.fullmatch(name, alert) for alert in alerts), name


def test_manifests_are_what_kubernetes_takes_and_kustomizations_list_each() -> None:
    run(BIN / "kubernetes-validate", "--strict", *(path for path in MANIFESTS if path.stem not in OF_OTHERS))
    for folder in KUSTOMIZED:
        listed = [each for each in manifest("kustomization", folder.name)["resources"] if not each.startswith("../")]
        assert sorted(listed) == [path.name for path in MANIFESTS if path.parent == folder]


def kustomized(folder: str) -> list[Any]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing: it makes what is applied of base and overlay")
    return list(yaml.safe_load_all(run("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)))


@pytest.mark.shows("several pods form one fleet: each has its name, and only they reach each other")
def test_several_pods_are_one_fleet() -> None:
    made = {(each["kind"], each["metadata"]["name"]): each for each in kustomized("hosts")}

    assert {kind for kind, _ in made} >= {"StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"}
    assert {kind for kind, _ in made}.isdisjoint({"Deployment", "PersistentVolumeClaim"})
    pods = made["StatefulSet", "kctl"]["spec"]
    headless, policy = made["Service", pods["serviceName"]], made["NetworkPolicy", "kctl-hosts"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["selector"].items() <= labels.items()
    [source] = policy["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"].items() <= labels.items()
    monitored = made["ServiceMonitor", "kctl"]["spec"]["selector"]["matchLabels"]
    assert not monitored.items() <= headless["metadata"]["labels"].items(), "each pod is scraped once"
    [container] = pods["template"]["spec"]["containers"]
    url = next(each["value"] for each in container["env"] if each["name"] == "KCTL_HOSTS_URL")
    assert url == f"https://$(KCTL_HOSTS_NAME).{pods['serviceName']}.$(POD_NAMESPACE).svc:9750"


@pytest.mark.shows("KEDA and the HPA scale pods to the advised number of hosts, and keep them while it is unknown")
def test_autoscalers_follow_the_advice() -> None:
    keda, hpa = manifest("scaledobject", "keda")["spec"], manifest("horizontalpodautoscaler", "hpa")["spec"]

    [trigger], [metric] = keda["triggers"], hpa["metrics"]
    assert trigger["metadata"]["url"].endswith("/api/v1/advice")
    assert trigger["metadata"]["valueLocation"] in Advice.__struct_fields__
    assert metric["external"]["metric"]["name"] in {each.name for each in METRICS}
    assert keda["fallback"]["behavior"] == "currentReplicas"
    assert keda["minReplicaCount"] == hpa["minReplicas"] == 1
    for behavior in (keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"], hpa["behavior"]):
        assert {each["tolerance"] for each in behavior.values()} == {"0"}


@pytest.mark.parametrize("folder", ["keda", "hpa"])
def test_an_autoscaled_fleet_sets_no_number_of_pods(folder: str) -> None:
    made = {(each["kind"], each["metadata"]["name"]): each for each in kustomized(folder)}

    assert "replicas" not in made["StatefulSet", "kctl"]["spec"]


@pytest.mark.parametrize(("kind", "folder"), [("deployment", "base"), ("statefulset", "hosts")])
def test_the_pod_has_no_rights_that_it_does_not_need(kind: str, folder: str) -> None:
    pod = manifest(kind, folder)["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    written = re.findall(r"KCTL_FLEET_\w+_DIR=(\S+)", (DEPLOY / "docker" / "Dockerfile").read_text())
    mounted = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert len(written) == 3
    assert mounted >= {"/tmp"}
    assert all(any(path.startswith(mount) for mount in mounted) for path in written)


@pytest.mark.shows("a fleet that is not ready restarts no pod; the scraper's token can only read")
def test_a_fleet_that_is_not_ready_is_not_restarted() -> None:
    [container] = manifest("deployment")["spec"]["template"]["spec"]["containers"]

    asked = {name: container[name]["exec"]["command"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}

    assert asked == {
        "startupProbe": ["kctl-probe", "healthz"],
        "livenessProbe": ["kctl-probe", "healthz"],
        "readinessProbe": ["kctl-probe", "readyz"],
    }
    assert manifest("service")["spec"]["publishNotReadyAddresses"] is True
    assert 'CMD ["kctl-probe", "healthz"]' in (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")


def test_service_monitor_and_budget_find_the_pod_and_only_prometheus_reaches_its_port() -> None:
    template, policy = manifest("deployment")["spec"]["template"], manifest("networkpolicy")["spec"]
    pods, [container] = template["metadata"]["labels"], template["spec"]["containers"]
    service, monitor, [rule] = manifest("service"), manifest("servicemonitor"), policy["ingress"]

    assert service["spec"]["selector"].items() <= pods.items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert manifest("poddisruptionbudget")["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert policy["podSelector"]["matchLabels"].items() <= pods.items()
    assert policy["policyTypes"] == ["Ingress"]
    assert [each["port"] for each in rule["ports"]] == [container["ports"][0]["containerPort"]]
    assert [each.keys() for each in rule["from"]] == [{"namespaceSelector", "podSelector"}]


def test_prometheus_gets_the_token_that_may_only_read() -> None:
    monitor, prometheus = manifest("servicemonitor"), COMPOSE["services"]["prometheus"]
    environment = COMPOSE["services"]["kctl"]["environment"]
    [container] = manifest("deployment")["spec"]["template"]["spec"]["containers"]
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]

    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"]["name"] == "kctl-read-token"
    assert scrape["authorization"]["credentials_file"] == environment["KCTL_HTTP_READ_TOKEN_FILE"]
    assert [f"/run/secrets/{name}" for name in prometheus["secrets"]] == [environment["KCTL_HTTP_READ_TOKEN_FILE"]]
    assert environment["KCTL_HTTP_TOKEN_FILE"] != environment["KCTL_HTTP_READ_TOKEN_FILE"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    [volume] = [
        each for each in manifest("deployment")["spec"]["template"]["spec"]["volumes"] if each["name"] == "token"
    ]
    files = {
        f"/run/secrets/kctl/{item['path']}": source["secret"]["name"]
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert files[variables["KCTL_HTTP_TOKEN_FILE"]] == "kctl-token"
    assert files[variables["KCTL_HTTP_READ_TOKEN_FILE"]] == "kctl-read-token"


@pytest.mark.parametrize("file", ["compose/kctl.toml", "kubernetes/base/kctl.toml", "kubernetes/hosts/kctl.toml"])
def test_the_fleets_that_are_deployed_can_be_used(file: str) -> None:
    ours = {"KCTL_HOSTS_URL": "https://kctl-0.kctl-hosts.default.svc:9750"} if "hosts" in file else {}
    config = load(DEPLOY / file, {"KCTL_HTTP_TOKEN_FILE": "/run/secrets/token", **ours})

    assert config.http.host == "0.0.0.0"


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI"):
            pytest.fail("systemd-analyze is missing: apt-get install systemd")
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    unit = tmp_path / "kctl@orders.service"
    unit.write_text((DEPLOY / "systemd" / "kctl@.service").read_text().replace("/opt/kctl/bin/kctl", str(BIN / "kctl")))

    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert [line for line in verified.stderr.splitlines() if "kctl" in line] == []  # it warns and exits with 0
    assert verified.returncode == 0
    exposure = run("systemd-analyze", "security", "--offline=true", "--threshold=25", unit)
    assert "Overall exposure level" in exposure


def test_the_unit_sets_nothing_that_a_command_beside_it_would_not_see() -> None:
    unit = (DEPLOY / "systemd" / "kctl@.service").read_text()
    page = (DEPLOY / "README.md").read_text()

    assert not re.search(r"KCTL_(FLEET|STORAGE)_", unit)
    [written] = re.findall(r"```toml\n(# /etc/kctl/orders.toml.*?)```", page, re.S)
    fleet = tomllib.loads(written)
    assert fleet["fleet"]["run_dir"] == "/run/kctl/orders", "RuntimeDirectory=kctl/%i"
    for folder in (fleet["fleet"]["data_dir"], fleet["storage"]["path"]):
        assert folder.startswith("/var/lib/kctl/orders"), "StateDirectory=kctl/%i"
    assert fleet["fleet"]["log_dir"] == "/var/log/kctl/orders", "LogsDirectory=kctl/%i"


def test_the_image_has_the_packages_that_are_tested_and_nothing_else() -> None:
    tested, shipped = versions(ROOT / "requirements.lock"), versions(DEPLOY / "requirements.lock")
    wanted = run(ROOT / "scripts" / "runtime_requirements").split("\n")

    assert shipped.items() <= tested.items()
    assert {re.split(r"[\[ <>=]", line)[0].lower() for line in wanted if line} <= shipped.keys()
    assert "selenium" not in shipped


def test_the_image_gets_every_folder_that_it_copies() -> None:
    image = (DEPLOY / "docker" / "Dockerfile").read_text()
    let_in = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().split()

    sources = [word for line in re.findall(r"^COPY (?!--from)(.+)$", image, re.MULTILINE) for word in line.split()[:-1]]

    for source in (word for word in sources if not word.startswith("--")):
        assert (ROOT / source).exists(), source
        assert f"!{source}" in let_in, source


def test_the_probe_of_the_image_reports_that_no_master_runs(tmp_path: Path) -> None:
    config = tmp_path / "kctl.toml"
    config.write_text('[kafka]\nbootstrap_servers = "kafka:9092"\ngroup = "g"\ntopics = ["t"]\n')

    def probe(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, DEPLOY / "docker" / "probe", *words],
            env={"KCTL_CONFIG": str(config), "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    gone, wrong = probe("healthz"), probe("metrics")

    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)
    assert "healthz: no master is running there" in gone.stderr
    assert (wrong.returncode, wrong.stderr) == (1, "usage: kctl-probe healthz | readyz\n")
