"""What clients over HTTP get besides objects: warnings, health, metrics, plain refusals."""

from __future__ import annotations

from pathlib import Path

from test_apiserver_http import Web, over_tls

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
