"""Order, probes, hooks and the end of containers that run as processes."""

import pytest
from processes_stage import condition, needs, play, pod, shell, state

from pykueue.api.resources import PODS


@pytest.fixture(autouse=True, scope="module")
def processes():
    needs("processes")


def container(name, script, **more):
    return {"name": name, "image": "nothing", "command": ["bash", "-c", script], **more}


SHARED = {"volumes": [{"name": "v", "emptyDir": {}}]}
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


def test_init_containers_come_first_and_sidecars_stay_to_the_end():
    async def story(stage):
        sidecar = container(
            "sidecar",
            "trap 'exit 0' TERM; echo sidecar >> /v/log; while :; do sleep 0.02; done",
            restartPolicy="Always",
            startupProbe={"exec": {"command": ["grep", "-q", "sidecar", "/v/log"]}, "periodSeconds": 1},
            **MOUNT,
        )
        init = [container("first", "echo first >> /v/log", **MOUNT), sidecar]
        init.append(container("second", "echo second >> /v/log", **MOUNT))
        main = container("main", "echo main >> /v/log; cat /v/log", **MOUNT)
        await stage.create(pod("ordered", containers=[main], initContainers=init, **SHARED))
        found = await stage.ended("ordered")
        assert found["status"]["phase"] == "Succeeded"
        assert await stage.log("ordered") == "first\nsidecar\nsecond\nmain\n"
        assert state(found, "sidecar")[1]["exitCode"] == 0

    play(story)


def test_a_failing_init_container_fails_the_pod():
    async def story(stage):
        init = [container("first", "exit 4"), container("second", "true")]
        await stage.create(pod("fails", containers=[container("main", "true")], initContainers=init))
        found = await stage.ended("fails")
        assert found["status"]["phase"] == "Failed"
        assert state(found, "first")[1]["exitCode"] == 4
        assert state(found, "second")[0] == "waiting"
        assert state(found, "main") == ("waiting", {"reason": "PodInitializing"})

    play(story)


def test_readiness_follows_the_probe():
    async def story(stage):
        probe = {"exec": {"command": ["test", "-e", "/v/well"]}, "periodSeconds": 1, "failureThreshold": 1}
        main = container("main", "read x < /v/gate; touch /v/well; sleep 100", readinessProbe=probe, **MOUNT)
        helper = container("helper", "mkfifo /v/gate; sleep 100", **MOUNT)
        main["command"][2] = "until [ -p /v/gate ]; do sleep 0.02; done; " + main["command"][2]
        await stage.create(pod("probed", containers=[main, helper], **SHARED))
        found = await stage.until(
            "probed", lambda found: found and state(found) and state(found)[0] == "running"
        )
        assert condition(found, "Ready") == "False"
        assert "Readiness probe failed" in await stage.said("probed", "Unhealthy")
        gate = stage.folder / found["metadata"]["uid"] / "volumes" / "v" / "gate"
        await stage.eventually(gate.exists)
        gate.write_text("go\n")
        await stage.ready("probed")

    play(story)


def test_failing_liveness_probe_restarts_the_container():
    async def story(stage):
        probe = {
            "exec": {"command": ["bash", "-c", "[ -e /v/once ]"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        }
        script = "if [ -e /v/runs ]; then touch /v/once; fi; touch /v/runs; sleep 100"
        await stage.create(
            pod(
                "sick",
                containers=[container("main", script, livenessProbe=probe, **MOUNT)],
                policy="Always",
                terminationGracePeriodSeconds=0,
                **SHARED,
            )
        )
        found = await stage.until(
            "sick",
            lambda found: (
                found["status"].get("containerStatuses", [{}])[0].get("restartCount") == 1
                and condition(found, "Ready") == "True"
            ),
        )
        last = found["status"]["containerStatuses"][0]["lastState"]["terminated"]
        assert last["exitCode"] == 137
        assert "will be restarted" in await stage.said("sick", "Killing")

    play(story)


def test_a_port_is_probed():
    needs("network")

    async def story(stage):
        serve = ["python3", "-m", "http.server", "8080"]
        web = {"name": "web", "image": "nothing", "command": serve}
        tcp = {**web, "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}
        missing = {"httpGet": {"path": "/missing", "port": 8080}, "periodSeconds": 1}
        await stage.create(
            pod("tcp", containers=[tcp]), pod("http", containers=[{**web, "readinessProbe": missing}])
        )
        await stage.ready("tcp")
        await stage.said("http", "Unhealthy", "HTTP probe failed with statuscode: 404")

    play(story)


def test_programs_are_asked_to_end_and_then_made_to():
    async def story(stage):
        polite = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.02; done"
        await stage.create(
            shell("polite", polite, finalizers=["test/keep"], terminationGracePeriodSeconds=30),
            # Process 1 has no handler: SIGTERM does nothing to it, as in any container.
            shell("deaf", "echo up; sleep 100; true", finalizers=["test/keep"]),
        )
        for name, code, text in (("polite", 0, "up\nasked\n"), ("deaf", 137, "up\n")):
            await stage.eventually_logged(name, "up\n")
            await stage.client.delete(PODS, name, "default")
            found = await stage.ended(name)
            assert state(found)[1]["exitCode"] == code
            assert await stage.log(name) == text
            await stage.release(name)
            await stage.until(name, lambda found: found is None)

    play(story)


def test_hooks():
    async def story(stage):
        post = {"exec": {"command": ["bash", "-c", "echo after the start > /v/post"]}}
        pre = {"exec": {"command": ["bash", "-c", "echo before the stop > /v/pre"]}}
        script = "trap 'cat /v/post /v/pre; exit 0' TERM; echo up; while :; do sleep 0.02; done"
        main = container("main", script, lifecycle={"postStart": post, "preStop": pre}, **MOUNT)
        await stage.create(
            pod(
                "hooked",
                containers=[main],
                finalizers=["test/keep"],
                terminationGracePeriodSeconds=30,
                **SHARED,
            )
        )
        found = await stage.ready("hooked")
        await stage.eventually((stage.folder / found["metadata"]["uid"] / "volumes" / "v" / "post").exists)
        await stage.eventually_logged("hooked", "up\n")
        await stage.client.delete(PODS, "hooked", "default")
        await stage.ended("hooked")
        assert await stage.log("hooked") == "up\nafter the start\nbefore the stop\n"
        await stage.release("hooked")

    play(story)


def test_a_pod_has_its_deadline():
    async def story(stage):
        await stage.create(
            shell("late", "sleep 100", activeDeadlineSeconds=1, terminationGracePeriodSeconds=0)
        )
        found = await stage.ended("late")
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "DeadlineExceeded")

    play(story)
