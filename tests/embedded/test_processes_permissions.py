"""Containers as processes for users who may do less: what still works, and what is said of what does not."""

import os
import shutil
import subprocess
import sys

import pytest
from processes_stage import needs, play, shell, state
from test_processes_network import fetch, server, service
from test_processes_running import commands

from pykueue.api.resources import PODS
from pykueue.embedded.nodes.processes import link

#: A user other than root who may create user namespaces.
UNPRIVILEGED = ("unshare", "-U", "--map-user=1000", "--map-group=1000")
#: A user who may create no namespaces.
WITHOUT_NAMESPACES = (
    "unshare",
    "-Ur",
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all "$@"',
    "sh",
)


def run_as(monkeypatch, prefix):
    """Let the agent be run by such a user, or skip the test where that cannot be arranged."""
    if not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("unshare and setpriv (util-linux) are not installed")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot become another one: no user namespaces")
    monkeypatch.setattr(link, "PROGRAM", (*prefix, sys.executable, *link.PROGRAM[1:]))


def test_user_with_user_namespaces_has_all_features(monkeypatch):
    run_as(monkeypatch, UNPRIVILEGED)
    needs("network")

    async def story(stage):
        volume = {"name": "v", "emptyDir": {}}
        await stage.create(
            service("web", target="web"), service("direct", headless=True, selector={"app": "web"})
        )
        await stage.create(
            server("one", "web", volumes=[volume], c_volumeMounts=[{"name": "v", "mountPath": "/new/place"}])
        )
        await stage.ready("one")
        await stage.create(
            shell("asks", f"{fetch('http://web/')}; {fetch('http://direct:8080/')}; id -u; ps ax | wc -l")
        )
        await stage.ended("asks")
        lines = (await stage.log("asks")).split()
        assert lines[:3] == ["one", "one", "0"]
        # Its own processes are all it sees: a heading, the shell, ps, wc.
        assert int(lines[3]) <= 4

    play(story)


def test_without_namespaces_programs_run_and_end(monkeypatch):
    run_as(monkeypatch, WITHOUT_NAMESPACES)

    async def story(stage):
        abilities = await stage.nodes.abilities()
        assert "max_user_namespaces" in abilities.processes
        marker = f"sleep 88{os.getpid()}"
        probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
        await stage.create(
            shell("ends", "echo $HOSTNAME; exit 3"),
            shell("told", f"trap 'exit 0' TERM; {marker} & wait", c_readinessProbe=probe),
            shell("stays", f"{marker} & {marker}"),
        )
        assert state(await stage.ended("ends"))[1]["exitCode"] == 3
        assert await stage.log("ends") == "ends\n"
        for name in ("told", "stays"):
            await stage.ready(name)
        await stage.eventually(lambda: len(commands(marker)) >= 3)
        await stage.client.delete(PODS, "told", "default")
        await stage.until("told", lambda found: found is None)
        await stage.kill("nodes")
        await stage.eventually(lambda: not commands(marker))

    play(story)


def test_without_namespaces_it_is_said_what_is_missing(monkeypatch):
    run_as(monkeypatch, WITHOUT_NAMESPACES)

    async def story(stage):
        await stage.create(
            server("web", "web"),
            shell("host", "echo up", c_ports=[{"containerPort": 8080}], hostNetwork=True),
            shell(
                "mounts",
                "true",
                volumes=[{"name": "v", "emptyDir": {}}],
                c_volumeMounts=[{"name": "v", "mountPath": "/v"}],
            ),
        )
        text = await stage.said("web", "FailedCreatePodSandBox")
        assert "pods cannot have a network of their own here: user namespaces: none are left" in text
        assert "hostNetwork: true" in text
        web = await stage.until("web", lambda found: "message" in state(found)[1])
        assert state(web)[1]["reason"] == "CreateContainerConfigError"
        assert (await stage.ended("host"))["status"]["phase"] == "Succeeded"
        mounts = await stage.until("mounts", lambda found: state(found) and "message" in state(found)[1])
        assert "volumes cannot be mounted here: user namespaces" in state(mounts)[1]["message"]

    play(story)
