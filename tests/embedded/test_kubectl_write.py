"""kubectl writes: creating, applying, editing, patching, replacing, deleting, asserted on what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from clients_harness import Kubectl, Object, config_map, deployment, pod, widget

pytest_plugins = ["kubectl_fixtures"]
pytestmark = pytest.mark.kubectl


def write(path: Path, *objects: Object) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


class TestCreate:
    @pytest.mark.parametrize(
        ("words", "printed"),
        [
            ("quota few --hard=pods=5,requests.cpu=4", "resourcequota/few created"),
            ("job hello --image=busybox -- echo hi", "job.batch/hello created"),
            ("cronjob tick --image=busybox --schedule=@daily", "cronjob.batch/tick created"),
            ("configmap settings --from-literal=a=b", "configmap/settings created"),
            ("secret generic key --from-literal=a=b", "secret/key created"),
            ("secret docker-registry reg --docker-server=r --docker-username=u --docker-password=p",
             "secret/reg created"),
            ("serviceaccount robot", "serviceaccount/robot created"),
            ("deployment web --image=nginx --replicas=0", "deployment.apps/web created"),
            ("service clusterip web --tcp=80:8080", "service/web created"),
            ("service nodeport out --tcp=80", "service/out created"),
            ("ingress web --rule=a.com/=web:80", "ingress.networking.k8s.io/web created"),
            ("role reader --verb=get --resource=pods", "role.rbac.authorization.k8s.io/reader created"),
            ("rolebinding readers --role=reader --user=bob",
             "rolebinding.rbac.authorization.k8s.io/readers created"),
            ("pdb safe --selector=app=web --min-available=1", "poddisruptionbudget.policy/safe created"),
        ],
    )  # fmt: skip
    def test_kinds(self, kubectl: Kubectl, words: str, printed: str) -> None:
        arguments = ["create", *words.split(" ")]
        separator = arguments.index("--") if "--" in arguments else len(arguments)

        def with_option(option: str) -> list[str]:
            return [*arguments[:separator], *option.split(), *arguments[separator:]]

        assert kubectl(*with_option("--dry-run=client")) == f"{printed} (dry run)\n"
        assert kubectl(*with_option("--dry-run=server")) == f"{printed} (server dry run)\n"
        assert kubectl("get", printed.split()[0], "--ignore-not-found") == ""
        shown = yaml.safe_load(kubectl(*with_option("--dry-run=server -o yaml")))
        assert shown["metadata"]["uid"]
        assert kubectl(*arguments) == f"{printed}\n"
        assert "already exists" in kubectl.refused(*arguments)
        assert kubectl("get", printed.split()[0], "-o", "name") == f"{printed.split()[0]}\n"

    @pytest.mark.parametrize("words", [
        "namespace made-by-kubectl", "clusterrole made-by-kubectl --verb=get --resource=nodes",
        "clusterrolebinding made-by-kubectl --clusterrole=view --user=bob",
        "priorityclass made-by-kubectl --value=7",
    ])  # fmt: skip
    def test_cluster_scoped_kinds(self, kubectl: Kubectl, words: str) -> None:
        assert kubectl("create", *words.split()).endswith("/made-by-kubectl created\n")
        kubectl("delete", words.split()[0], "made-by-kubectl")

    def test_dry_run_on_the_client_asks_nothing(self, kubectl: Kubectl) -> None:
        shown = kubectl(
            "create", "quota", "q", "--hard=pods=1", "--dry-run=client", "-o", "yaml",
            "--server=https://127.0.0.1:1",
        )  # fmt: skip
        assert yaml.safe_load(shown)["spec"] == {"hard": {"pods": "1"}}

    def test_a_token_is_good_for_a_request(self, kubectl: Kubectl) -> None:
        kubectl("create", "serviceaccount", "robot")
        kubectl("create", "rolebinding", "robot", "--clusterrole=view",
                f"--serviceaccount={kubectl.namespace}:robot")  # fmt: skip
        token = kubectl("create", "token", "robot", "--duration=20m").strip()
        as_robot = ("--token", token, "--kubeconfig", "/dev/null", "--server", kubectl.server.url,
                    "--certificate-authority", str(kubectl.server.ca_file))  # fmt: skip
        name = f"system:serviceaccount:{kubectl.namespace}:robot"
        assert name in kubectl("auth", "whoami", *as_robot)
        assert kubectl("auth", "can-i", "list", "pods", *as_robot) == "yes\n"
        error = kubectl.refused("create", "configmap", "c", *as_robot)
        assert f'User "{name}" cannot create resource "configmaps"' in error

    def test_from_files(self, kubectl: Kubectl, tmp_path: Path) -> None:
        path = write(tmp_path / "both.yaml", config_map("one"), widget("two", color="red"))
        assert kubectl("create", "-f", path) == "configmap/one created\nwidget.example.com/two created\n"
        assert kubectl("delete", "-f", path, "-o", "name") == "configmap/one\nwidget.example.com/two\n"
        generated = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
        assert kubectl("create", "-f", "-", stdin=generated).startswith("configmap/gen-")

    def test_a_job_from_a_cronjob(self, kubectl: Kubectl) -> None:
        kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=@daily")
        assert kubectl("create", "job", "now", "--from=cronjob/tick") == "job.batch/now created\n"
        assert kubectl.object("get", "job", "now")["metadata"]["ownerReferences"][0]["name"] == "tick"

    def test_run_expose_autoscale(self, kubectl: Kubectl) -> None:
        assert kubectl("run", "web", "--image=nginx", "--port=80") == "pod/web created\n"
        assert kubectl("expose", "pod", "web", "--port=80") == "service/web exposed\n"
        assert kubectl.object("get", "service", "web")["spec"]["selector"] == {"run": "web"}
        kubectl("create", "deployment", "app", "--image=nginx", "--replicas=0")
        assert "autoscaled" in kubectl("autoscale", "deployment", "app", "--max=4")
        assert kubectl.rows("get", "hpa")[1][:2] == ["app", "Deployment/app"]


class TestRefusals:
    def test_unknown_fields(self, kubectl: Kubectl) -> None:
        wrong = widget("w", colour="red")
        assert 'strict decoding error: unknown field "spec.colour"' in kubectl.refused(
            "create", "-f", "-", stdin=wrong
        )
        _, out, err = kubectl.run("create", "--validate=warn", "-f", "-", stdin=wrong)
        assert (out, err) == ("widget.example.com/w created\n", 'Warning: unknown field "spec.colour"\n')
        assert kubectl("create", "--validate=ignore", "-f", "-", stdin={**wrong, "metadata": {"name": "v"}})
        assert kubectl.object("get", "widget", "v")["spec"] == {"size": 3}

    def test_duplicate_fields(self, kubectl: Kubectl) -> None:
        text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"},"data":{}}'
        assert kubectl.run("create", "-f", "-", stdin=text)[0] in (0, 1)  # kubectl may drop one itself.

    @pytest.mark.parametrize(
        ("obj", "told"),
        [
            (widget("w", size=0), "spec.size in body should be greater than or equal to 1"),
            (widget("w", size="big"), "spec.size in body must be of type integer"),
            (widget("w", color="green"), 'spec.color: Unsupported value: "green": supported values:'),
            (widget("w", parts=[{"name": "a"}, {"name": "a"}]), "spec.parts[1]: Duplicate value"),
            (widget("w", replicas=11), "no more than ten"),
            (widget("Not A Name"), "metadata.name: Invalid value: \"Not A Name\""),
            (pod("p", restartPolicy="Sometimes"), 'spec.restartPolicy: Unsupported value: "Sometimes"'),
            (pod("p", containers=[]), "spec.containers: Required value"),
            (config_map("c", {"a b": "c"}), "metadata.labels: Invalid value: \"a b\""),
        ],
    )  # fmt: skip
    def test_invalid_objects(self, kubectl: Kubectl, obj: Object, told: str) -> None:
        error = kubectl.refused("create", "--validate=ignore", "-f", "-", stdin=obj)
        assert f'The {obj["kind"]} "{obj["metadata"]["name"]}" is invalid' in error
        assert told in error

    def test_wrong_types_in_built_in_kinds(self, kubectl: Kubectl) -> None:
        wrong: Any = {**config_map("c"), "data": {"a": 1}}
        error = kubectl.refused("create", "-f", "-", stdin=wrong)
        assert "data.a in body must be of type string" in error

    def test_kinds_and_namespaces_that_are_not_there(self, kubectl: Kubectl) -> None:
        nothing = {"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "x"}}
        assert 'no matches for kind "Nothing" in version "v1"' in kubectl.refused(
            "create", "-f", "-", stdin=nothing
        )
        assert 'namespaces "gone" not found' in kubectl.refused("create", "-n", "gone", "configmap", "c")


class TestApply:
    def test_client_side(self, kubectl: Kubectl, tmp_path: Path) -> None:
        whole = deployment("app", replicas=0)
        containers = whole["spec"]["template"]["spec"]["containers"]
        containers.append({"name": "side", "image": "busybox:1", "env": [{"name": "A", "value": "1"}]})
        path = write(tmp_path / "app.yaml", whole)
        assert kubectl("apply", "-f", path) == "deployment.apps/app created\n"
        assert kubectl("apply", "-f", path) == "deployment.apps/app unchanged\n"
        kubectl("patch", "deploy", "app", "-p", '{"spec":{"minReadySeconds":4}}')
        containers.pop()
        del whole["metadata"]["labels"]
        code, difference, _ = kubectl.run("diff", "-f", write(tmp_path / "app.yaml", whole))
        assert code == 1
        assert "-        name: side" in difference
        assert kubectl("apply", "-f", path, "--dry-run=server").endswith("configured (server dry run)\n")
        assert len(kubectl.object("get", "deploy", "app")["spec"]["template"]["spec"]["containers"]) == 2
        assert kubectl("apply", "-f", path) == "deployment.apps/app configured\n"
        live = kubectl.object("get", "deploy", "app")
        assert [one["name"] for one in live["spec"]["template"]["spec"]["containers"]] == ["main"]
        assert "labels" not in live["metadata"]
        assert live["spec"]["minReadySeconds"] == 4  # not ours, not touched
        assert kubectl("diff", "-f", path) == ""

    def test_client_side_of_a_custom_kind(self, kubectl: Kubectl, tmp_path: Path) -> None:
        path = write(tmp_path / "w.yaml", widget("w", color="red", parts=[{"name": "a"}, {"name": "b"}]))
        assert kubectl("apply", "-f", path) == "widget.example.com/w created\n"
        write(tmp_path / "w.yaml", widget("w", parts=[{"name": "b", "weight": 2}]))
        assert kubectl("apply", "-f", path) == "widget.example.com/w configured\n"
        assert kubectl.object("get", "widget", "w")["spec"] == {
            "size": 3,
            "parts": [{"name": "b", "weight": 2}],
        }
        assert kubectl("apply", "view-last-applied", "widget/w").startswith("apiVersion: example.com/v1")

    def test_what_is_left_out_of_the_set_is_pruned(self, kubectl: Kubectl, tmp_path: Path) -> None:
        labels = {"set": "mine"}
        path = write(tmp_path / "all.yaml", config_map("keep", labels), config_map("drop", labels))
        kubectl("apply", "-f", path)
        write(tmp_path / "all.yaml", config_map("keep", labels))
        told = kubectl(
            "apply", "-f", path, "--prune", "-l", "set=mine", "--prune-allowlist=core/v1/ConfigMap"
        )
        assert told == "configmap/keep unchanged\nconfigmap/drop pruned\n"

    def test_server_side(self, kubectl: Kubectl, tmp_path: Path) -> None:
        path = write(tmp_path / "w.yaml", widget("w", color="red", parts=[{"name": "a", "weight": 1}]))
        apply = ("apply", "--server-side", "-f", path)
        assert kubectl(*apply) == "widget.example.com/w serverside-applied\n"
        before = kubectl.object("get", "widget", "w")["metadata"]["resourceVersion"]
        kubectl(*apply)
        assert kubectl.object("get", "widget", "w")["metadata"]["resourceVersion"] == before
        other = write(tmp_path / "other.yaml", widget("w", color="blue", parts=[{"name": "b", "weight": 2}]))
        error = kubectl.refused("apply", "--server-side", "-f", other, "--field-manager=other")
        assert 'Apply failed with 1 conflict: conflict with "kubectl": .spec.color' in error
        kubectl("apply", "--server-side", "-f", other, "--field-manager=other", "--force-conflicts")
        spec = kubectl.object("get", "widget", "w")["spec"]
        assert (spec["color"], [one["name"] for one in spec["parts"]]) == ("blue", ["a", "b"])
        write(tmp_path / "w.yaml", widget("w", replicas=2))
        kubectl(*apply)
        spec = kubectl.object("get", "widget", "w")["spec"]
        assert [one["name"] for one in spec["parts"]] == ["b"]  # what it no longer applies is gone
        managers = kubectl.object("get", "widget", "w", "--show-managed-fields")["metadata"]["managedFields"]
        assert {(one["manager"], one["operation"]) for one in managers} == {
            ("kubectl", "Apply"),
            ("other", "Apply"),
        }
        assert "managedFields" not in kubectl("get", "widget", "w", "-o", "yaml")

    def test_from_client_side_to_server_side(self, kubectl: Kubectl, tmp_path: Path) -> None:
        path = write(tmp_path / "app.yaml", deployment("app", replicas=0))
        kubectl("apply", "-f", path)
        assert kubectl("apply", "--server-side", "-f", path) == "deployment.apps/app serverside-applied\n"
        whole = deployment("app", replicas=0)
        del whole["metadata"]["labels"]
        write(tmp_path / "app.yaml", whole)
        kubectl("apply", "--server-side", "-f", path)
        assert "labels" not in kubectl.object("get", "deploy", "app")["metadata"]


class TestPatch:
    def test_merge_and_json(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w", color="red", replicas=1))
        patched = "widget.example.com/w patched\n"
        assert kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"color":null}}') == patched
        operations = (
            '[{"op":"test","path":"/spec/replicas","value":1},{"op":"remove","path":"/spec/replicas"}]'
        )
        assert kubectl("patch", "wd", "w", "--type=json", "-p", operations) == patched
        assert kubectl.object("get", "wd", "w")["spec"] == {"size": 3}
        error = kubectl.refused("patch", "wd", "w", "--type=json", "-p", operations)
        assert "the server rejected our request" in error
        unchanged = kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":3}}')
        assert unchanged == "widget.example.com/w patched (no change)\n"

    def test_strategic(self, kubectl: Kubectl) -> None:
        kubectl.put(deployment("app", replicas=0))
        for container in ('{"name":"two","image":"b"}', '{"name":"main","image":"c"}'):
            patch = f'{{"spec":{{"template":{{"spec":{{"containers":[{container}]}}}}}}}}'
            assert kubectl("patch", "deploy", "app", "-p", patch) == "deployment.apps/app patched\n"
        path = "jsonpath={range .spec.template.spec.containers[*]}{.name}={.image} {end}"
        assert {*kubectl("get", "deploy", "app", "-o", path).split()} == {"two=b", "main=c"}
        patch = '{"spec":{"template":{"spec":{"containers":[{"name":"two","$patch":"delete"}]}}}}'
        kubectl("patch", "deploy", "app", "-p", patch)
        assert kubectl("get", "deploy", "app", "-o", path) == "main=c "

    def test_strategic_is_not_for_custom_kinds(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        error = kubectl.refused("patch", "wd", "w", "-p", '{"spec":{"size":4}}')
        assert "strategic-merge-patch+json is not supported" in error

    def test_status(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        patch = '{"spec":{"size":9},"status":{"phase":"On"}}'
        kubectl("patch", "wd", "w", "--type=merge", "--subresource=status", "-p", patch)
        live = kubectl.object("get", "wd", "w")
        assert (live["spec"]["size"], live["status"]["phase"]) == (3, "On")
        kubectl("patch", "wd", "w", "--type=merge", "-p", '{"status":{"phase":"Off"}}')
        assert kubectl.object("get", "wd", "w")["status"]["phase"] == "On"

    def test_dry_run(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":9}}', "--dry-run=server")
        assert kubectl.object("get", "wd", "w")["spec"]["size"] == 3


class TestEditAndReplace:
    def test_edit(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w", color="red"))
        kubectl.put(deployment("app", replicas=0))
        red_to_blue = {"KUBE_EDITOR": "sed -i s/red/blue/"}
        assert kubectl("edit", "widget", "w", **red_to_blue) == "widget.example.com/w edited\n"
        assert kubectl.object("get", "wd", "w")["spec"]["color"] == "blue"
        assert "Edit cancelled, no changes made." in "".join(
            kubectl.run("edit", "wd", "w", **red_to_blue)[1:]
        )
        newer = {"KUBE_EDITOR": "sed -i s/busybox:1/busybox:2/"}
        assert kubectl("edit", "deployment", "app", **newer) == "deployment.apps/app edited\n"
        containers = kubectl.object("get", "deploy", "app")["spec"]["template"]["spec"]["containers"]
        assert containers[0]["image"] == "busybox:2"

    def test_an_edit_that_is_refused(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w", color="red"))
        code, _, err = kubectl.run("edit", "widget", "w", KUBE_EDITOR="sed -i s/red/pink/")
        assert code == 1
        assert 'widgets.example.com "w" is invalid' in err

    def test_replace(self, kubectl: Kubectl, tmp_path: Path) -> None:
        kubectl.put(widget("w", color="red"))
        path = write(tmp_path / "w.yaml", widget("w", size=7))
        uid = kubectl.object("get", "wd", "w")["metadata"]["uid"]
        assert kubectl("replace", "-f", path) == "widget.example.com/w replaced\n"
        live = kubectl.object("get", "wd", "w")
        assert (live["spec"], live["metadata"]["uid"]) == ({"size": 7}, uid)
        assert kubectl("replace", "--force", "-f", path).endswith("widget.example.com/w replaced\n")
        assert kubectl.object("get", "wd", "w")["metadata"]["uid"] != uid
        kubectl("delete", "-f", path)
        assert "(NotFound)" in kubectl.refused("replace", "-f", path)

    def test_a_stale_replace(self, kubectl: Kubectl) -> None:
        kubectl.put(config_map("c"))
        stale = kubectl.object("get", "cm", "c")
        kubectl("label", "cm", "c", "a=b")
        error = kubectl.refused("replace", "-f", "-", stdin=json.dumps(stale))
        assert 'Operation cannot be fulfilled on configmaps "c": the object has been modified' in error


class TestLabelAndAnnotate:
    @pytest.mark.parametrize(("verb", "where"), [("label", "labels"), ("annotate", "annotations")])
    def test_set_change_remove(self, kubectl: Kubectl, verb: str, where: str) -> None:
        kubectl.put(config_map("c"))
        done = {"label": "labeled", "annotate": "annotated"}[verb]
        assert kubectl(verb, "cm", "c", "a=b") == f"configmap/c {done}\n"
        assert "--overwrite is false" in kubectl.refused(verb, "cm", "c", "a=c")
        kubectl(verb, "cm", "c", "a=c", "--overwrite")
        assert kubectl.object("get", "cm", "c")["metadata"][where] == {"a": "c"}
        kubectl(verb, "cm", "c", "a-")
        assert where not in kubectl.object("get", "cm", "c")["metadata"]

    def test_with_a_version(self, kubectl: Kubectl) -> None:
        kubectl.put(config_map("c"))
        assert "(Conflict)" in kubectl.refused("label", "cm", "c", "a=b", "--resource-version=1")

    def test_all_of_a_kind(self, kubectl: Kubectl) -> None:
        kubectl.put(config_map("a"))
        kubectl.put(config_map("b"))
        assert kubectl("label", "cm", "--all", "x=y") == "configmap/a labeled\nconfigmap/b labeled\n"


class TestScaleAndSet:
    def test_scale(self, kubectl: Kubectl) -> None:
        kubectl.put(deployment("app", replicas=0))
        kubectl.put(widget("w", replicas=1))
        assert kubectl("scale", "deployment/app", "--replicas=2") == "deployment.apps/app scaled\n"
        assert kubectl("scale", "widget/w", "--replicas=4") == "widget.example.com/w scaled\n"
        assert kubectl.object("get", "wd", "w")["spec"]["replicas"] == 4
        kubectl("scale", "deployment/app", "--current-replicas=2", "--replicas=1")
        error = kubectl.refused("scale", "deployment/app", "--current-replicas=2", "--replicas=5")
        assert "Expected replicas to be 2, was 1" in error
        assert '"gone" not found' in kubectl.refused("scale", "--replicas=1", "deployment/gone")

    def test_set(self, kubectl: Kubectl) -> None:
        kubectl.put(deployment("app", replicas=0))
        assert (
            kubectl("set", "image", "deploy/app", "main=busybox:9") == "deployment.apps/app image updated\n"
        )
        assert kubectl("set", "env", "deploy/app", "A=1") == "deployment.apps/app env updated\n"
        kubectl("set", "resources", "deploy/app", "--limits=cpu=1")
        container = kubectl.object("get", "deploy", "app")["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == "busybox:9"
        assert container["env"] == [{"name": "A", "value": "1"}]
        assert container["resources"]["limits"] == {"cpu": "1"}

    def test_rollout(self, kubectl: Kubectl) -> None:
        kubectl.put(deployment("app", replicas=0))
        assert kubectl("rollout", "restart", "deploy/app") == "deployment.apps/app restarted\n"
        assert kubectl("rollout", "pause", "deploy/app") == "deployment.apps/app paused\n"
        assert kubectl("rollout", "resume", "deploy/app") == "deployment.apps/app resumed\n"


class TestDelete:
    def test_by_name_selector_and_all(self, kubectl: Kubectl) -> None:
        for name in "abcd":
            kubectl.put(config_map(name, {"first": "yes"} if name in "ab" else None))
        assert kubectl("delete", "cm", "-l", "first=yes", "-o", "name") == "configmap/a\nconfigmap/b\n"
        assert kubectl("delete", "cm", "c", "-o", "name") == "configmap/c\n"
        assert kubectl("delete", "cm", "--all", "-o", "name") == "configmap/d\n"
        assert "(NotFound)" in kubectl.refused("delete", "cm", "c")
        assert kubectl("delete", "cm", "c", "--ignore-not-found") == ""

    @pytest.mark.parametrize("dry_run", ["client", "server"])
    def test_dry_run(self, kubectl: Kubectl, dry_run: str) -> None:
        kubectl.put(config_map("c"))
        assert "dry run" in kubectl("delete", "cm", "c", f"--dry-run={dry_run}")
        assert kubectl("get", "cm", "-o", "name") == "configmap/c\n"

    def owned(self, kubectl: Kubectl) -> None:
        owner = kubectl.put(config_map("owner"))["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        owned = config_map("owned")
        owned["metadata"]["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
        kubectl.put(owned)

    @pytest.mark.parametrize("cascade", ["background", "foreground"])
    def test_what_it_owns_goes_with_it(self, kubectl: Kubectl, cascade: str) -> None:
        self.owned(kubectl)
        kubectl("delete", "cm", "owner", f"--cascade={cascade}")
        kubectl("wait", "--for=delete", "cm/owned", "--timeout=60s")
        assert kubectl("get", "cm", "-o", "name") == ""

    def test_orphans_stay(self, kubectl: Kubectl) -> None:
        self.owned(kubectl)
        kubectl("delete", "cm", "owner", "--cascade=orphan")
        assert kubectl("get", "cm", "-o", "name") == "configmap/owned\n"
        assert "ownerReferences" not in kubectl.object("get", "cm", "owned")["metadata"]

    def test_finalizers_hold_it(self, kubectl: Kubectl) -> None:
        held = config_map("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        kubectl.put(held)
        kubectl("delete", "cm", "held", "--wait=false")
        assert kubectl.object("get", "cm", "held")["metadata"]["deletionTimestamp"]
        assert "timed out waiting" in kubectl.refused("delete", "cm", "held", "--timeout=1s")
        with kubectl.popen("wait", "--for=delete", "cm/held", "--timeout=60s") as waiting:
            kubectl("patch", "cm", "held", "-p", '{"metadata":{"finalizers":null}}')
            waiting.communicate()
            assert waiting.returncode == 0

    @pytest.mark.parametrize("option", [("--now",), ("--force", "--grace-period=0"), ("--grace-period=1",)])
    def test_pods_with_grace(self, kubectl: Kubectl, option: tuple[str, ...]) -> None:
        kubectl.put(pod("p"))
        kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
        assert kubectl("delete", "pod", "p", *option, "-o", "name") == "pod/p\n"
        assert kubectl("get", "pods", "-o", "name") == ""

    def test_a_namespace(self, kubectl: Kubectl) -> None:
        kubectl.put(config_map("c"))
        kubectl("delete", "namespace", kubectl.namespace)
        assert "(NotFound)" in kubectl.refused("get", "namespace", kubectl.namespace)
