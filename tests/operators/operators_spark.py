"""spark-submit without Spark: it creates the driver's pod and those of its executors.

The Spark operator runs `$SPARK_HOME/bin/spark-submit`, and real executors are created by the driver. Here
one program creates both from the same properties. What the operator's webhook adds to pods is left to it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

_PREFIX = "spark.kubernetes."


@contextlib.contextmanager
def spark_home() -> Iterator[Mapping[str, str]]:
    """A directory with `bin/spark-submit`, named by the environment variable that the operator reads."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} "$@"\n')
        program.chmod(0o755)
        # The operator puts the API server's address into the arguments; nothing reads it there.
        service = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        yield {"SPARK_HOME": folder, **service}


def submit(arguments: list[str]) -> None:
    """Create the pods that the properties among the arguments describe."""
    pairs = itertools.pairwise(arguments)
    properties = dict(value.split("=", 1) for flag, value in pairs if flag == "--conf")
    namespace = properties[f"{_PREFIX}namespace"]
    driver = _pod(properties, "driver", properties[f"{_PREFIX}driver.pod.name"])
    owner = _create(driver, namespace)["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
    }
    for number in range(1, int(properties["spark.executor.instances"]) + 1):
        executor = _pod(properties, "executor", f"{owner['name']}-exec-{number}")
        executor["metadata"]["labels"]["spark-exec-id"] = str(number)
        executor["metadata"]["ownerReferences"] = [reference]
        _create(executor, namespace)


def _pod(properties: dict[str, str], role: str, name: str) -> Object:
    """The pod of a role: https://spark.apache.org/docs/latest/running-on-kubernetes.html, "Configuration"."""
    own = f"{_PREFIX}{role}."
    cores = properties.get(f"{own}request.cores") or properties.get(f"spark.{role}.cores", "1")
    container = {
        "name": f"spark-kubernetes-{role}",
        "image": properties.get(f"{own}container.image", "spark"),
        "resources": {"requests": {"cpu": cores}},
    }
    file = properties.get(f"{own}podTemplateFile")
    template = yaml.safe_load(Path(file).read_text()) if file else {}
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    selector = _below(properties, f"{_PREFIX}node.selector.") | _below(properties, f"{own}node.selector.")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                **(metadata.get("labels") or {}),
                **_below(properties, f"{own}label."),
                "spark-role": role,
            },
            "annotations": {**(metadata.get("annotations") or {}), **_below(properties, f"{own}annotation.")},
        },
        "spec": {
            **spec,
            "restartPolicy": "Never",
            "nodeSelector": {**(spec.get("nodeSelector") or {}), **selector},
            "containers": [container],
        },
    }


def _below(properties: dict[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def _create(pod: Object, namespace: str) -> Object:
    command = ["kubectl", "create", "-f", "-", "-o", "json", "-n", namespace]
    done = subprocess.run(command, input=json.dumps(pod), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    created: Object = json.loads(done.stdout)
    return created


if __name__ == "__main__":
    submit(sys.argv[1:])
