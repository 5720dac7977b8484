"""What clients over HTTP get besides objects: warnings, health, metrics, plain refusals."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from apiserver_harness import CONFIG_MAPS, PODS, Api, config_map, pod, with_server
from prometheus_client.parser import text_string_to_metric_families
from test_apiserver_http import Web, over_tls

from pykueue.embedded.apiserver.health import Health
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.sqlite import SqliteStore

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def job(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "busybox:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


def test_deleting_a_job_without_saying_what_of_its_pods_warns(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        for name in ("a", "b"):
            await client.ask("POST", JOBS, job(name))
        _, headers, _ = await client.ask("DELETE", f"{JOBS}/a")
        assert "child pods are preserved by default" in headers["Warning"]
        _, headers, _ = await client.ask("DELETE", f"{JOBS}/b", propagationPolicy="Background")
        assert "Warning" not in headers

    over_tls(tmp_path, story)


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Values by name and labels worth telling apart."""
    return {
        (
            one.name,
            *(one.labels[key] for key in ("verb", "resource", "code", "le") if key in one.labels),
        ): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


def test_metrics_count_requests_objects_and_watches(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        await client.ask("POST", CONFIG_MAPS, config_map("a"))
        await client.ask("POST", CONFIG_MAPS, config_map("a"))
        for _ in range(3):
            await client.ask("GET", CONFIG_MAPS)
        url = f"{client.address.url}{CONFIG_MAPS}?watch=true"
        async with client.session.get(url, headers={"Authorization": f"Bearer {client.address.token}"}):
            code, _, text = await client.ask("GET", "/metrics")
        assert code == 200
        found = samples(text)
        assert found["apiserver_request_total", "CREATE", "configmaps", "201"] == 1
        assert found["apiserver_request_total", "CREATE", "configmaps", "409"] == 1
        assert found["apiserver_request_total", "LIST", "configmaps", "200"] == 3
        assert found["apiserver_request_duration_seconds_count", "LIST", "configmaps"] == 3
        assert found["apiserver_request_duration_seconds_bucket", "LIST", "configmaps", "+Inf"] == 3
        assert found["apiserver_longrunning_requests", "WATCH", "configmaps"] == 1
        assert found["apiserver_storage_objects", "configmaps"] == 2, "ours, and how to tell the front proxy"
        assert found[("process_resident_memory_bytes",)] > 0

    over_tls(tmp_path, story)


def test_health_says_which_check_fails(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        for path in ("/healthz", "/livez", "/readyz", "/readyz/store", "/livez/ping"):
            assert (await client.ask("GET", path))[::2] == (200, b"ok")
        _, _, text = await client.ask("GET", "/readyz", verbose="")
        assert text == b"[+]ping ok\n[+]store ok\n[+]serving ok\nreadyz check passed\n"
        assert (await client.ask("GET", "/readyz/nothing"))[0] == 404
        client.server.pipeline.health.serving = False
        code, _, text = await client.ask("GET", "/readyz")
        assert code == 500
        assert b"[-]serving failed: the server is starting or stopping\nreadyz check failed\n" in text
        assert (await client.ask("GET", "/readyz", exclude="serving"))[0] == 200
        assert (await client.ask("GET", "/livez"))[0] == 200

    over_tls(tmp_path, story)


def test_a_store_that_cannot_write_is_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "state.db"
        server = Server(SqliteStore(path))
        await server.start()
        assert (await server.pipeline.health.answer("readyz", {})).code == 200
        path.rename(tmp_path / "moved.db")
        assert (await server.pipeline.health.answer("readyz", {})).code == 200, "known for a second"
        later = Health(server.store, server.clock)
        verdict = await later.answer("livez/store", {})
        assert verdict.code == 500
        assert "cannot be written" in verdict.text
        path.write_bytes(b"")
        verdict = await Health(server.store, server.clock).answer("livez/store", {})
        assert "the file was replaced by another" in verdict.text
        path.unlink()
        (tmp_path / "moved.db").rename(path)
        assert (await Health(server.store, server.clock).answer("livez/store", {})).code == 200
        await server.stop()

    asyncio.run(main())


SECRETS_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def test_pods_are_given_the_token_of_their_account(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        init = {"name": "before", "image": "busybox"}
        made = (await client.ask("POST", PODS, pod("p", initContainers=[init])))[2]
        (volume,) = made["spec"]["volumes"]
        assert re.fullmatch(r"kube-api-access-[a-z0-9]{5}", volume["name"])
        sources = volume["projected"]["sources"]
        assert sources[0] == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
        assert sources[1]["configMap"]["name"] == "kube-root-ca.crt"
        assert sources[2]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == "metadata.namespace"
        mount = {"name": volume["name"], "readOnly": True, "mountPath": SECRETS_PATH}
        for container in made["spec"]["initContainers"] + made["spec"]["containers"]:
            assert container["volumeMounts"] == [mount]

        plain = (await client.ask("POST", PODS, pod("plain", automountServiceAccountToken=False)))[2]
        assert "volumes" not in plain["spec"]
        own = {
            "name": "main",
            "image": "busybox",
            "volumeMounts": [{"name": "mine", "mountPath": SECRETS_PATH}],
        }
        mine = {"name": "mine", "emptyDir": {}}
        made = (await client.ask("POST", PODS, pod("own", containers=[own], volumes=[mine])))[2]
        assert [one["name"] for one in made["spec"]["volumes"]] == ["mine"]
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "shy"}}
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await client.ask("POST", accounts, {**account, "automountServiceAccountToken": False})
        assert (
            "volumes" not in (await client.ask("POST", PODS, pod("shy", serviceAccountName="shy")))[2]["spec"]
        )
        asked = pod("asked", serviceAccountName="shy", automountServiceAccountToken=True)
        assert len((await client.ask("POST", PODS, asked))[2]["spec"]["volumes"]) == 1

    over_tls(tmp_path, story, runs_pods=True)


def test_every_namespace_has_the_certificate_of_the_authority(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
        await client.ask("POST", "/api/v1/namespaces", namespace)
        for name in ("default", "kube-system", "new"):
            path = f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt"
            found = (await client.ask("GET", path))[2]
            assert found["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
            merge = {"Content-Type": "application/merge-patch+json"}
            await client.ask("PATCH", path, {"data": {"ca.crt": "forged"}}, merge)
            assert (await client.ask("GET", path))[2]["data"] == found["data"]
            await client.ask("DELETE", path)
            assert (await client.ask("GET", path))[2]["data"] == found["data"]

    over_tls(tmp_path, story, runs_pods=True)


def test_what_pods_cannot_do_here_is_said_plainly(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        await client.ask("POST", PODS, pod("p"))
        for name in ("exec", "attach", "portforward"):
            code, _, status = await client.ask("POST", f"{PODS}/p/{name}")
            assert (code, status["reason"]) == (501, "NotImplemented")
            assert "cannot be entered or reached" in status["message"]
        merge = {"Content-Type": "application/merge-patch+json"}
        for name in ("ephemeralcontainers", "resize"):
            code, _, status = await client.ask("PATCH", f"{PODS}/p/{name}", {"spec": {}}, merge)
            assert (code, status["kind"]) == (501, "Status")
        assert (await client.ask("PATCH", f"{PODS}/none/resize", {"spec": {}}, merge))[0] == 404

    over_tls(tmp_path, story)


def test_who_am_i_in_the_versions_older_clients_ask(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        for version in ("v1", "v1beta1", "v1alpha1"):
            api = f"authentication.k8s.io/{version}"
            body = {"apiVersion": api, "kind": "SelfSubjectReview"}
            code, _, review = await client.ask("POST", f"/apis/{api}/selfsubjectreviews", body)
            assert (code, review["apiVersion"]) == (201, api)
            assert review["status"]["userInfo"]["username"] == "kubernetes-admin"

    over_tls(tmp_path, story)


def test_who_creates_an_object_by_name_owns_its_fields_from_the_start() -> None:
    """The entries are those of a cluster for `kubectl create`, `label` and `patch`."""

    async def story(api: Api) -> None:
        made = await api.create(
            CONFIG_MAPS, config_map("c", {"a": "b"}, k="v", l="w"), fieldManager="kubectl-create"
        )
        assert made["metadata"]["managedFields"] == [
            {
                "manager": "kubectl-create",
                "operation": "Update",
                "apiVersion": "v1",
                "time": made["metadata"]["creationTimestamp"],
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:data": {".": {}, "f:k": {}, "f:l": {}},
                    "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                },
            }
        ]
        path = f"{CONFIG_MAPS}/c"
        patched = await api.patch(path, {"data": {"k": None, "m": "n"}}, fieldManager="kubectl-patch")
        fields = {one["manager"]: one["fieldsV1"] for one in patched["metadata"]["managedFields"]}
        assert fields["kubectl-patch"] == {"f:data": {"f:m": {}}}
        assert fields["kubectl-create"]["f:data"] == {".": {}, "f:l": {}}
        error = await api.refused(api.apply(path, config_map("c", l="z", m="q"), "kubectl"))
        assert error.message == (
            'Apply failed with 2 conflicts: conflicts with "kubectl-create" using v1:\n- .data.l\n'
            'conflicts with "kubectl-patch" using v1:\n- .data.m'
        )
        spec = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": spec}},
        }
        made = await api.create("/apis/batch/v1/namespaces/default/jobs", job, fieldManager="kubectl-create")
        (entry,) = made["metadata"]["managedFields"]
        owned = entry["fieldsV1"]["f:spec"]
        assert "." not in owned
        assert "f:selector" not in owned
        assert set(owned["f:template"]) == {"f:spec"}
        assert owned["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']["f:image"] == {}
        # Controllers create objects without a field manager: ownership is recorded from the first apply on.
        assert "managedFields" not in (await api.create(CONFIG_MAPS, config_map("d")))["metadata"]

    with_server(story)
