"""What containers are given: variables, volumes, a working directory; and what is said when it is missing."""

import base64
import json
from pathlib import Path

import pytest
from processes_stage import needs, play, pod, shell, state

from pykueue.api.resources import CONFIG_MAPS, SECRETS


@pytest.fixture(autouse=True, scope="module")
def mounts():
    needs("mounts")


def config_map(name, **data):
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, CONFIG_MAPS


def secret(name, **data):
    meta = {"name": name, "namespace": "default"}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded}, SECRETS


def test_variables_from_everywhere():
    def ref(kind, **said):
        return {"valueFrom": {kind: said}}

    env = [
        {"name": "PLAIN", "value": "one"},
        {"name": "BUILT", "value": "$(PLAIN)-$(FROM_ALL)-$(UNSET)-$$(PLAIN)"},
        {"name": "POD", **ref("fieldRef", fieldPath="metadata.name")},
        {"name": "LABEL", **ref("fieldRef", fieldPath="metadata.labels['app']")},
        {"name": "NODE", **ref("fieldRef", fieldPath="spec.nodeName")},
        {"name": "ADDRESS", **ref("fieldRef", fieldPath="status.podIP")},
        {"name": "MEMORY", **ref("resourceFieldRef", resource="limits.memory", divisor="1Mi")},
        {"name": "CPU", **ref("resourceFieldRef", resource="requests.cpu")},
        {"name": "WHOLE", **ref("resourceFieldRef", resource="limits.cpu")},
        {"name": "KEY", **ref("configMapKeyRef", name="settings", key="key")},
        {"name": "WORD", **ref("secretKeyRef", name="words", key="word")},
        {"name": "ABSENT", **ref("secretKeyRef", name="none", key="word", optional=True)},
    ]

    async def story(stage):
        await stage.create(
            config_map("settings", key="from a map", ALL="everything"), secret("words", word="hush")
        )
        await stage.create(
            shell(
                "told",
                "python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'; echo $(PLAIN)",
                labels={"app": "teller"},
                c_env=env,
                c_envFrom=[{"prefix": "FROM_", "configMapRef": {"name": "settings"}}],
                c_resources={"limits": {"memory": "64Mi"}, "requests": {"cpu": "1500m"}},
            )
        )
        found = await stage.ended("told")
        first, second = (await stage.log("told")).splitlines()
        said = json.loads(first)
        assert second == "one"
        wanted = {
            "PLAIN": "one",
            "BUILT": "one-everything-$(UNSET)-$(PLAIN)",
            "POD": "told",
            "LABEL": "teller",
            "NODE": "n-0",
            "ADDRESS": found["status"]["podIP"],
            "MEMORY": "64",
            "CPU": "2",
            "WHOLE": "8",
            "KEY": "from a map",
            "WORD": "hush",
            "HOSTNAME": "told",
        }
        assert wanted.items() <= said.items()
        assert "ABSENT" not in said
        # Nothing of the program that runs the cluster is handed on beyond how to find programs.
        assert "PYTEST_CURRENT_TEST" not in said

    play(story)


def test_volumes_where_the_machine_has_no_such_place():
    volumes = [
        {"name": "map", "configMap": {"name": "scripts", "items": [{"key": "main.sh", "path": "bin/run"}]}},
        {"name": "hush", "secret": {"secretName": "words", "defaultMode": 0o400}},
        {"name": "room", "emptyDir": {}},
        {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {
            "name": "mixed",
            "projected": {
                "sources": [
                    {"configMap": {"name": "scripts"}},
                    {"secret": {"name": "words"}},
                    {
                        "downwardAPI": {
                            "items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
                        }
                    },
                ]
            },
        },
    ]
    mounts = [
        {"name": "map", "mountPath": "/scripts-of-mine"},
        {"name": "hush", "mountPath": "/etc/deep/in/etc"},
        {"name": "room", "mountPath": "/tmp"},
        {"name": "fast", "mountPath": "/fast"},
        {"name": "mixed", "mountPath": "/mixed/all"},
        {"name": "room", "mountPath": "/room/sub", "subPath": "some/where"},
    ]
    script = (
        "bash /scripts-of-mine/bin/run; cat /etc/deep/in/etc/word; echo; stat -c %a /etc/deep/in/etc/word;"
        "ls -A /tmp; echo left > /tmp/file; echo deep > /room/sub/file; cat /tmp/some/where/file;"
        "stat -f -c %T /fast; ls /mixed/all; cat /mixed/all/name; echo; echo no > /scripts-of-mine/x;"
        "pwd; id -u > here; cat here"
    )

    async def story(stage):
        await stage.create(
            config_map("scripts", **{"main.sh": "echo from a map"}), secret("words", word="hush")
        )
        second = {
            "name": "second",
            "image": "nothing",
            "command": ["bash", "-c", "until cat /shared/file; do sleep 0.05; done"],
            "volumeMounts": [{"name": "room", "mountPath": "/shared"}],
        }
        first = {
            "name": "main",
            "image": "nothing",
            "command": ["bash", "-c", script],
            "volumeMounts": mounts,
            "workingDir": "/srv/work/of/mine",
        }
        await stage.create(pod("mounts", containers=[first, second], volumes=volumes))
        assert (await stage.ended("mounts"))["status"]["phase"] == "Succeeded"
        lines = (await stage.log("mounts")).splitlines()
        assert [line for line in lines if "Read-only" not in line] == [
            "from a map",
            "hush",
            "400",
            "some",
            "deep",
            "tmpfs",
            "main.sh",
            "name",
            "word",
            "mounts",
            "/srv/work/of/mine",
            "0",
        ]
        assert any("/scripts-of-mine/x: Read-only file system" in line for line in lines)
        assert "left\n" in await stage.log("mounts", "second")

    play(story)


def test_a_missing_map_is_waited_for():
    async def story(stage):
        volume = {"name": "map", "configMap": {"name": "late"}}
        mount = {"name": "map", "mountPath": "/map"}
        await stage.create(shell("waits", "cat /map/key", volumes=[volume], c_volumeMounts=[mount]))
        text = await stage.said("waits", "FailedMount")
        assert text == 'MountVolume.SetUp failed for volume "map" : configmap "late" not found'
        await stage.create(config_map("late", key="there"))
        await stage.ended("waits")
        assert await stage.log("waits") == "there"

    play(story)


def test_a_missing_key_holds_the_container_and_says_so():
    async def story(stage):
        said = {"configMapKeyRef": {"name": "late", "key": "key"}}
        await stage.create(shell("waits", "echo $KEY", c_env=[{"name": "KEY", "valueFrom": said}]))
        found = await stage.until(
            "waits", lambda found: found and state(found) and state(found)[1].get("message")
        )
        assert state(found) == (
            "waiting",
            {"reason": "CreateContainerConfigError", "message": 'configmap "late" not found'},
        )
        await stage.create(config_map("late", key="there"))
        await stage.ended("waits")
        assert await stage.log("waits") == "there\n"

    play(story)


def test_volumes_that_nodes_of_processes_do_not_have():
    async def story(stage):
        claim = {"name": "disk", "persistentVolumeClaim": {"claimName": "mine"}}
        await stage.create(shell("disk", "true", volumes=[claim]))
        assert "persistentVolumeClaim volumes are not supported" in await stage.said("disk", "FailedMount")

    play(story)


def test_last_words():
    async def story(stage):
        await stage.create(
            shell("speaks", "echo it broke > /dev/termination-log; exit 1"),
            shell("logs", "echo in the log; exit 1", c_terminationMessagePolicy="FallbackToLogsOnError"),
            shell("elsewhere", "echo there > /some/where", c_terminationMessagePath="/some/where"),
        )
        assert state(await stage.ended("speaks"))[1]["message"] == "it broke\n"
        assert state(await stage.ended("logs"))[1]["message"] == "in the log\n"
        assert state(await stage.ended("elsewhere"))[1]["message"] == "there\n"

    play(story)


def test_the_machine_is_as_it_was(tmp_path):
    async def story(stage):
        host = {"name": "host", "hostPath": {"path": str(tmp_path), "type": "Directory"}}
        mounts = [{"name": "host", "mountPath": "/of-the-machine"}]
        script = "echo kept > /of-the-machine/file; echo gone > /top-of-the-tree; echo gone > beside"
        await stage.create(shell("writes", script, volumes=[host], c_volumeMounts=mounts))
        await stage.ended("writes")

    play(story)
    assert (tmp_path / "file").read_text() == "kept\n"
    assert not (tmp_path / "beside").exists()
    assert not Path("/of-the-machine").exists()
    assert not Path("/top-of-the-tree").exists()
