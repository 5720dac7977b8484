"""Real kubectl against the server, command by command, judged by what it prints.

`KUBECTL` names the binary to use; without it, and without one on PATH, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(KUBECTL is None, reason="no kubectl: set KUBECTL or put one on PATH"),
]

_SERVER = """
import asyncio, random, sys
from pathlib import Path
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.sqlite import SqliteStore

async def main():
    directory = Path(sys.argv[1])
    server = Server(SqliteStore(directory / "store.db"), Clock(), random.Random())
    await server.start()
    address = await server.serve(directory=directory)
    print(address.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()

asyncio.run(main())
"""

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sample, labels: {app: sample}}
spec:
  parallelism: 2
  completions: 2
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: busybox, command: ["true"], resources: {requests: {cpu: "1"}}}
"""

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large it is.}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, value: {type: string}}
"""

WIDGET = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: 3, parts: [{name: a, value: x}]}
"""


class Kubectl:
    """Runs kubectl against one server."""

    def __init__(self, config: Path, home: Path) -> None:
        self._home = home
        self._env = {**os.environ, "KUBECONFIG": str(config), "HOME": str(home)}

    def __call__(self, command: str, stdin: str = "", **env: str) -> str:
        """Standard output; the command must succeed."""
        code, output = self.run(command, stdin, **env)
        assert code == 0, output
        return output

    def run(self, command: str, stdin: str = "", **env: str) -> tuple[int, str]:
        """Exit code and everything printed."""
        assert KUBECTL is not None
        done = subprocess.run(
            [KUBECTL, *shlex.split(command)],
            input=stdin,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**self._env, **env},
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    def fails(self, command: str, stdin: str = "") -> str:
        """What is printed; the command must fail."""
        code, output = self.run(command, stdin)
        assert code != 0, output
        return output

    def start(self, command: str, **env: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        assert KUBECTL is not None
        return subprocess.Popen(
            [KUBECTL, *shlex.split(command)], text=True, stdout=subprocess.PIPE, env={**self._env, **env}
        )

    def file(self, text: str) -> Path:
        path = self._home / f"manifest-{len(list(self._home.iterdir()))}.yaml"
        path.write_text(text)
        return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server in a process of its own; the value is its kubeconfig."""
    directory = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-c", _SERVER, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("https://")
        yield directory / "kubeconfig"
        process.communicate("")
        assert process.returncode == 0


@pytest.fixture
def kubectl(server: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a namespace of its own."""
    name = request.node.name.replace("_", "-").replace("test-", "")[:50].strip("-")
    everywhere = Kubectl(server, tmp_path)
    everywhere(f"create namespace {name}")
    config = tmp_path / "config"
    shutil.copy(server, config)
    own = Kubectl(config, tmp_path)
    own(f"config set-context --current --namespace={name}")
    return own


def test_jobs_are_created_and_shown_in_every_form(kubectl: Kubectl) -> None:
    assert kubectl("create -f -", JOB) == "job.batch/sample created\n"
    assert "already exists" in kubectl.fails("create -f -", JOB)
    lines = kubectl("get jobs -o wide").splitlines()
    assert lines[0].split()[:3] == ["NAME", "STATUS", "COMPLETIONS"]
    assert lines[1].split()[0] == "sample"
    assert "0/2" in lines[1]
    assert kubectl("get job sample -o name") == "job.batch/sample\n"
    assert kubectl("get job sample -o jsonpath={.spec.suspend}") == "true"
    assert "backoffLimit: 6" in kubectl("get job sample -o yaml")
    assert '"kind": "Job"' in kubectl("get job/sample -o json")
    assert kubectl("get jobs -o custom-columns=N:.metadata.name --no-headers") == "sample\n"
    assert kubectl("get jobs -l app=sample -o name") == "job.batch/sample\n"
    assert "No resources found" in kubectl("get jobs -l app=other")
    assert kubectl("get jobs --field-selector metadata.name=sample -o name") == "job.batch/sample\n"
    assert "sample" in kubectl("get all")
    assert "sample" in kubectl("get jobs -A")
    described = kubectl("describe job sample")
    assert "Parallelism:" in described
    assert "busybox" in described
    assert 'jobs.batch "nope" not found' in kubectl.fails("get job nope")


def test_pages_and_sorting(kubectl: Kubectl) -> None:
    for name in "cab":
        kubectl(f"create configmap {name} --from-literal=k={name}")
    assert kubectl("get cm --chunk-size=1 -o name").split() == [f"configmap/{name}" for name in "abc"]
    shown = kubectl("get cm --sort-by=.metadata.creationTimestamp --no-headers")
    assert len(shown.splitlines()) == 3


def test_apply_knows_what_changed(kubectl: Kubectl) -> None:
    path = kubectl.file(JOB)
    assert kubectl(f"apply -f {path}") == "job.batch/sample created\n"
    assert kubectl(f"apply -f {path}") == "job.batch/sample unchanged\n"
    path.write_text(JOB.replace("{app: sample}", "{app: sample, more: yes-please}"))
    code, difference = kubectl.run(f"diff -f {path}")
    assert code == 1
    assert "+    more: yes-please" in difference
    assert kubectl(f"apply -f {path} --dry-run=server") == "job.batch/sample configured (server dry run)\n"
    assert kubectl(f"apply -f {path}") == "job.batch/sample configured\n"
    path.write_text(JOB)
    assert kubectl(f"apply -f {path}") == "job.batch/sample configured\n"
    assert kubectl("get job sample -o jsonpath={.metadata.labels}") == '{"app":"sample"}'
    assert kubectl(f"delete -f {path}") == 'job.batch "sample" deleted\n'


def test_custom_kinds_behave_like_built_in_ones(kubectl: Kubectl) -> None:
    kubectl("apply -f -", CRD)
    kubectl("wait --for=condition=Established crd/widgets.example.com --timeout=10s")
    assert kubectl("apply -f -", WIDGET) == "widget.example.com/w created\n"
    assert kubectl("apply -f -", WIDGET) == "widget.example.com/w unchanged\n"
    assert kubectl("get wd").splitlines()[1].split() == ["w", "3"]
    assert "How large it is." in kubectl("explain widget.spec.size")
    assert "parts\t<[]Object>" in kubectl("explain widget.spec --recursive")
    assert "Spec:" in kubectl("describe widget w")
    assert kubectl('patch wd w --type=merge -p \'{"spec":{"size":4}}\'') == "widget.example.com/w patched\n"
    assert "is not supported by" in kubectl.fails('patch wd w -p \'{"spec":{"size":5}}\'')
    refused = kubectl.fails("apply -f -", WIDGET.replace("size: 3", "size: big"))
    assert "spec.size" in refused
    assert 'unknown field "spec.zzz"' in kubectl.fails("create -f -", WIDGET.replace("size: 3", "zzz: 3"))
    assert "created" in kubectl("create -f - --validate=ignore", WIDGET.replace("name: w}", "name: v}"))
    kubectl("delete crd widgets.example.com")
    assert "the server" in kubectl.fails("get wd")


def test_server_side_apply_tells_conflicts(kubectl: Kubectl) -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: '%s'}\n"
    assert kubectl("apply --server-side -f -", config % 1) == "configmap/c serverside-applied\n"
    other = kubectl.fails("apply --server-side --field-manager=other -f -", config % 2)
    assert 'conflict with "kubectl": .data.k' in other
    kubectl("apply --server-side --field-manager=other --force-conflicts -f -", config % 2)
    assert kubectl("get cm c -o jsonpath={.data.k}") == "2"
    assert "manager: other" in kubectl("get cm c -o yaml --show-managed-fields")


def test_edit_patch_replace_label_annotate(kubectl: Kubectl) -> None:
    kubectl("create -f -", JOB)
    assert kubectl('patch job sample -p \'{"spec":{"parallelism":1}}\'') == "job.batch/sample patched\n"
    assert kubectl('patch job sample -p \'{"spec":{"parallelism":1}}\'') == (
        "job.batch/sample patched (no change)\n"
    )
    replace = '[{"op":"replace","path":"/spec/parallelism","value":2}]'
    kubectl(f"patch job sample --type=json -p '{replace}'")
    assert kubectl("label job sample team=x") == "job.batch/sample labeled\n"
    assert "already has a value" in kubectl.fails("label job sample team=y")
    kubectl("label job sample team-")
    assert kubectl("annotate job sample note=hello") == "job.batch/sample annotated\n"
    assert kubectl("get job sample -o jsonpath={.metadata.annotations.note}") == "hello"
    current = kubectl("get job sample -o yaml")
    assert kubectl("replace -f -", current.replace("note: hello", "note: bye")) == (
        "job.batch/sample replaced\n"
    )
    assert "the object has been modified" in kubectl.fails("replace -f -", current)
    edited = kubectl("edit job sample", KUBE_EDITOR="sed -i s/bye/edited/")
    assert edited == "job.batch/sample edited\n"
    assert kubectl("get job sample -o jsonpath={.metadata.annotations.note}") == "edited"
    assert "field is immutable" in kubectl.fails(
        'patch job sample -p \'{"spec":{"completionMode":"Indexed"}}\''
    )


def test_typed_creation_commands(kubectl: Kubectl) -> None:
    for command, said in (
        ("create configmap c --from-literal=a=b", "configmap/c created"),
        ("create secret generic s --from-literal=a=b", "secret/s created"),
        ("create serviceaccount sa", "serviceaccount/sa created"),
        ("create quota q --hard=services=2 --namespace=kube-public", "resourcequota/q created"),
        ("create job j --image=busybox", "job.batch/j created"),
        ("create cronjob cj --image=busybox --schedule='* * * * *'", "cronjob.batch/cj created"),
        ("create deployment d --image=nginx --replicas=2", "deployment.apps/d created"),
        ("create role r --verb=get --resource=pods", "rbac.authorization.k8s.io/r created"),
        ("create rolebinding rb --role=r --user=joe", "rbac.authorization.k8s.io/rb created"),
        (
            "create poddisruptionbudget p --selector=a=b --min-available=1",
            "poddisruptionbudget.policy/p created",
        ),
        ("run pod1 --image=busybox", "pod/pod1 created"),
        ("expose deployment d --port=80", "service/d exposed"),
        ("autoscale deployment d --max=3 --cpu-percent=50", "autoscaled"),
        ("create quota q2 --hard=pods=2 --dry-run=server", "resourcequota/q2 created (server dry run)"),
        ("create priorityclass pc --value=5 --dry-run=server", "priorityclass.scheduling.k8s.io/pc created"),
    ):
        assert said in kubectl(command)
    assert "kind: ConfigMap" in kubectl("create configmap x --from-literal=a=b --dry-run=client -o yaml")
    assert kubectl("create token sa").count(".") == 2
    assert kubectl("get secret s -o jsonpath={.data.a}") == "Yg=="
    assert "d" in kubectl("get deployments,services,hpa,pdb,cronjobs,roles,rolebindings")
    assert kubectl("get quota q2 --ignore-not-found") == ""


def test_scale_and_rollout(kubectl: Kubectl) -> None:
    kubectl("create deployment d --image=nginx")
    assert kubectl("scale deployment d --replicas=4") == "deployment.apps/d scaled\n"
    assert kubectl("scale deployment d --replicas=5 --current-replicas=4") == "deployment.apps/d scaled\n"
    assert "Expected replicas to be 3, was 5" in kubectl.fails(
        "scale deployment d --replicas=6 --current-replicas=3"
    )
    assert "image updated" in kubectl("set image deployment/d nginx=nginx:2")
    assert "restarted" in kubectl("rollout restart deployment d")
    assert "paused" in kubectl("rollout pause deployment d")
    assert kubectl("get deployment d -o jsonpath={..image}") == "nginx:2"


def test_waiting_for_what_comes(kubectl: Kubectl) -> None:
    kubectl("create -f -", JOB)
    with kubectl.start("wait --for=condition=complete job/sample --timeout=20s") as waiting:
        now = "2026-01-01T00:00:00Z"
        done = (
            f'{{"status":{{"startTime":"{now}","completionTime":"{now}","succeeded":2,'
            '"conditions":[{"type":"SuccessCriteriaMet","status":"True"},'
            '{"type":"Complete","status":"True"}]}}'
        )
        kubectl(f"patch job sample --subresource=status --type=merge -p '{done}'")
        assert waiting.communicate()[0] == "job.batch/sample condition met\n"
    kubectl("wait --for=jsonpath={.status.succeeded}=2 job/sample --timeout=5s")
    kubectl('patch job sample --type=merge -p \'{"metadata":{"finalizers":["example.com/hold"]}}\'')
    kubectl("delete job sample --wait=false")
    with kubectl.start("wait --for=delete job/sample --timeout=20s") as waiting:
        kubectl('patch job sample --type=merge -p \'{"metadata":{"finalizers":null}}\'')
        assert waiting.wait() == 0
        assert waiting.stdout is not None
        waiting.stdout.read()


def test_watching(kubectl: Kubectl) -> None:
    kubectl("create configmap first --from-literal=a=b")
    with kubectl.start("get configmaps -w --no-headers -o name") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "configmap/first\n"
        kubectl("create configmap second --from-literal=a=b")
        assert watching.stdout.readline() == "configmap/second\n"
        watching.terminate()
    with kubectl.start("get configmaps -w") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split() == ["NAME", "DATA", "AGE"]
        assert watching.stdout.readline().split()[:2] == ["first", "1"]
        assert watching.stdout.readline().split()[:2] == ["second", "1"]
        kubectl('patch configmap second -p \'{"data":{"c":"d"}}\'')
        assert watching.stdout.readline().split()[:2] == ["second", "2"]
        watching.terminate()


def test_both_versions_of_http(kubectl: Kubectl) -> None:
    for env in ({}, {"DISABLE_HTTP2": "1"}):
        spoken = kubectl("get configmaps", GODEBUG="http2debug=1", **env)
        assert ("http2: Transport received" in spoken) == (not env)
        kubectl("create configmap a --from-literal=a=b", **env)
        with kubectl.start("get configmaps -w --no-headers -o name", **env) as watching:
            assert watching.stdout is not None
            assert watching.stdout.readline() == "configmap/a\n"
            kubectl('patch configmap a -p \'{"data":{"c":"d"}}\'', **env)
            assert watching.stdout.readline() == "configmap/a\n"
            watching.terminate()
        large = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "b"},
            "data": {"x": "y" * 900_000},
        }
        kubectl("create -f -", json.dumps(large), **env)
        assert "y" * 900_000 in kubectl("get configmap b -o jsonpath={.data.x}", **env)
        kubectl("delete configmaps a b", **env)


def test_deleting(kubectl: Kubectl) -> None:
    for name in "abc":
        kubectl(f"create configmap {name} --from-literal=a=b")
    kubectl("label cm a b team=x")
    assert kubectl("delete cm -l team=x").splitlines() == ['configmap "a" deleted', 'configmap "b" deleted']
    assert kubectl("delete cm --all") == 'configmap "c" deleted\n'
    assert "not found" in kubectl.fails("delete cm c")
    assert kubectl("delete cm c --ignore-not-found") == ""
    kubectl("run p --image=busybox")
    assert 'pod "p" force deleted' in kubectl("delete pod p --force --grace-period=0")
    kubectl("create deployment d --image=nginx")
    kubectl("delete deployment d --cascade=foreground --wait=false")
    assert "foregroundDeletion" in kubectl("get deployment d -o jsonpath={.metadata.finalizers}")


def test_pods_events_and_logs(kubectl: Kubectl) -> None:
    kubectl("run p --image=busybox --restart=Never")
    assert kubectl("get pods").splitlines()[1].split()[:4] == ["p", "0/1", "Pending", "0"]
    described = kubectl("describe pod p")
    assert "Status:           Pending" in described
    assert "is waiting to start" in kubectl.fails("logs p")
    uid = kubectl("get pod p -o jsonpath={.metadata.uid}")
    namespace = kubectl("get pod p -o jsonpath={.metadata.namespace}")
    event = f"""
apiVersion: events.k8s.io/v1
kind: Event
metadata: {{name: e1}}
regarding: {{apiVersion: v1, kind: Pod, name: p, namespace: {namespace}, uid: {uid}}}
reason: Pulled
action: Pull
type: Normal
note: the image is here
reportingController: kubelet
reportingInstance: node
eventTime: "2026-01-02T03:04:05.123456Z"
"""
    kubectl("create -f -", event)
    assert "the image is here" in kubectl("describe pod p")
    assert "Pulled" in kubectl("get events")
    assert "the image is here" in kubectl("events --for pod/p")


def test_nodes_are_cordoned_tainted_and_drained(kubectl: Kubectl) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 4, pods: 10}}\n"
    kubectl("create -f -", node)
    assert kubectl("cordon n1") == "node/n1 cordoned\n"
    assert "SchedulingDisabled" in kubectl("get node n1")
    assert kubectl("uncordon n1") == "node/n1 uncordoned\n"
    assert kubectl("taint node n1 k=v:NoSchedule") == "node/n1 tainted\n"
    assert kubectl("taint node n1 k-") == "node/n1 untainted\n"
    assert "cpu:" in kubectl("describe node n1")
    assert "node/n1 drained" in kubectl("drain n1 --ignore-daemonsets")
    assert "Metrics API not available" in kubectl.fails("top nodes")
    kubectl("delete node n1")


def test_who_may_do_what(kubectl: Kubectl) -> None:
    assert "kubernetes-admin" in kubectl("auth whoami")
    assert kubectl("auth can-i create pods") == "yes\n"
    assert kubectl.run("auth can-i list pods --as joe") == (1, "no\n")
    assert 'User "joe" cannot list resource "pods"' in kubectl.fails("get pods --as joe")
    kubectl("create rolebinding joe-views --clusterrole=view --user=joe")
    assert "No resources found" in kubectl("get pods --as joe")
    assert "pods" in kubectl("auth can-i --list --as joe")


def test_what_the_server_is_and_has(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    assert "WARNING" not in kubectl("version")
    assert kubectl("get --raw /healthz") == "ok"
    resources = kubectl("api-resources").splitlines()
    assert any(line.split()[:3] == ["pods", "po", "v1"] for line in resources)
    assert "batch/v1" in kubectl("api-versions").split()
    assert "is running at" in kubectl("cluster-info")
    assert "List of containers" in kubectl("explain pod.spec.containers")
    assert "restartPolicy" in kubectl("explain job.spec.template.spec --recursive")


def test_bad_manifests_name_what_is_wrong(kubectl: Kubectl) -> None:
    assert "strict decoding error" in kubectl.fails(
        "create -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndataa: {a: b}\n"
    )
    assert "metadata.name" in kubectl.fails("create -f -", JOB.replace("name: sample,", "name: UPPER,"))
    assert "spec.template.spec.containers" in kubectl.fails(
        "create -f -", JOB.replace("image: busybox, ", "image: '', ")
    )
    assert "error" in kubectl.fails("create -f -", "this is: [not yaml").lower()
    assert "quantities must match" in kubectl.fails("create -f -", JOB.replace('cpu: "1"', "cpu: lots"))
