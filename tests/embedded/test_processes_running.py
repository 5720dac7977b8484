"""Containers as processes: their ends, their logs, their restarts, and that nothing of them is left."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from processes_stage import play, pod, shell, state

from pykueue.api.resources import NODES, PODS
from pykueue.embedded.apiserver.handlers.logs import pod_logs
from pykueue.kube.errors import ApiError


def test_exit_codes_and_phases():
    async def story(stage):
        await stage.create(shell("good", "exit 0"), shell("bad", "exit 3"))
        good, bad = await stage.ended("good"), await stage.ended("bad")
        assert good["status"]["phase"] == "Succeeded"
        assert bad["status"]["phase"] == "Failed"
        assert (state(good)[1]["reason"], state(good)[1]["exitCode"]) == ("Completed", 0)
        assert (state(bad)[1]["reason"], state(bad)[1]["exitCode"]) == ("Error", 3)
        assert state(bad)[1]["startedAt"] <= state(bad)[1]["finishedAt"]
        reasons = [reason for reason, _ in await stage.events("bad")]
        assert "Killing" not in reasons

    play(story)


def test_a_program_that_kills_itself_ends_as_a_signal_does():
    async def story(stage):
        # Inside a container process 1 is spared its own signals, as in any container: a child is not.
        await stage.create(shell("killed", "(kill -9 $BASHPID); exit $?"))
        assert state(await stage.ended("killed"))[1]["exitCode"] == 137

    play(story)


def test_what_containers_write_is_kept_by_run():
    async def story(stage):
        count = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; echo run $n; echo oops >&2; exit $n"
        await stage.create(shell("twice", count, policy="Always"))

        def backs_off(found):
            return found and found["status"].get("containerStatuses") and waiting(found) == "CrashLoopBackOff"

        def waiting(found):
            kind, said = state(found)
            return said.get("reason") if kind == "waiting" else None

        await stage.until("twice", backs_off)
        assert sorted((await stage.log("twice")).splitlines()) == ["oops", "run 1"]
        found = await stage.pod("twice")
        status = found["status"]["containerStatuses"][0]
        assert status["restartCount"] == 1
        assert status["lastState"]["terminated"]["exitCode"] == 1
        # The API server lets a waiting container's last words through.
        lines = pod_logs(found, {}, stage.server.pipeline.log_source)
        assert b"run 1" in b"".join([line async for line in lines])
        await stage.said("twice", "BackOff")

    play(story)


def test_logs_by_tail_time_and_size():
    async def story(stage):
        await stage.create(shell("tells", "for i in 1 2 3 4; do echo line $i; done; printf rest"))
        await stage.ended("tells")
        assert await stage.log("tells") == "line 1\nline 2\nline 3\nline 4\nrest"
        assert await stage.log("tells", tailLines="2") == "line 4\nrest"
        assert await stage.log("tells", tailLines="0") == ""
        assert await stage.log("tells", limitBytes="8") == "line 1\nl"
        assert await stage.log("tells", sinceTime="2020-01-01T00:00:00Z", tailLines="1") == "rest"
        assert await stage.log("tells", sinceTime="2099-01-01T00:00:00Z") == ""
        stamped = await stage.log("tells", timestamps="true", tailLines="1")
        moment, text = stamped.split(" ", 1)
        assert text == "rest"
        assert moment.endswith("Z")
        assert "T" in moment

    play(story)


def test_a_log_is_followed_to_its_end(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def story(stage):
        await stage.create(shell("tells", "echo one; read < gate; echo two", c_workingDir=str(tmp_path)))
        running = await stage.until(
            "tells", lambda found: found and state(found) and state(found)[0] == "running"
        )
        parts = []
        async for part in stage.server.pipeline.log_source(running, "main", {"follow": "true"}):
            parts.append(part)
            if len(parts) == 1:
                assert part == b"one\n"
                await asyncio.to_thread(gate.write_text, "go\n")
        assert b"".join(parts) == b"one\ntwo\n"

    play(story)


def test_the_log_of_a_container_that_does_not_run_is_refused():
    async def story(stage):
        await stage.create(pod("imageless"))
        found = await stage.until(
            "imageless", lambda found: found and state(found) and state(found)[1].get("message")
        )
        kind, said = state(found)
        assert (kind, said["reason"]) == ("waiting", "CreateContainerConfigError")
        assert "images are not run here" in said["message"]
        assert "images are not run here" in await stage.said("imageless", "Failed")
        with pytest.raises(ApiError, match="is waiting to start: CreateContainerConfigError"):
            pod_logs(found, {}, stage.server.pipeline.log_source)

    play(story)


def test_a_program_that_is_not_there():
    async def story(stage):
        await stage.create(pod("lost", "no-such-program"))
        kind, said = state(await stage.ended("lost"))
        assert (kind, said["reason"], said["exitCode"]) == ("terminated", "StartError", 128)
        assert said["message"] == 'exec: "no-such-program": executable file not found in $PATH'

    play(story)


def test_no_process_is_left_when_nodes_end_and_their_end_is_reported_on_restart():
    async def story(stage):
        marker = f"sleep 86{os.getpid()}"
        await stage.create(
            shell("once", f"{marker} & {marker}"),
            shell("again", f"{marker} & {marker}", policy="OnFailure"),
        )
        await stage.ready("once")
        await stage.ready("again")
        assert commands(marker)
        await stage.kill("nodes")
        assert not commands(marker)
        stage.start("nodes")
        ended = await stage.ended("once")
        assert (state(ended)[1]["exitCode"], state(ended)[1]["reason"]) == (255, "Unknown")
        assert "ended with it" in state(ended)[1]["message"]
        again = await stage.until(
            "again", lambda found: found["status"]["containerStatuses"][0]["restartCount"] == 1
        )
        assert again["status"]["phase"] == "Running"
        assert again["status"]["podIP"]

    play(story)


def test_a_pod_that_is_removed_by_force_is_ended_and_its_files_go():
    async def story(stage):
        marker = f"sleep 87{os.getpid()}"
        await stage.create(shell("forced", marker))
        found = await stage.ready("forced")
        folder = stage.folder / found["metadata"]["uid"]
        assert folder.exists()
        await stage.client.delete(PODS, "forced", "default", grace_period=0)
        await stage.eventually(lambda: not commands(marker) and not folder.exists())

    play(story)


def commands(text):
    """The machine's processes whose command line contains a text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if entry.name.isdigit() and text in line:
            found.append(line)
    return found


def test_an_agent_that_dies_is_started_again_and_its_containers_too():
    async def story(stage):
        await stage.create(shell("steady", "sleep 1000", policy="Always"))
        await stage.ready("steady")
        (agent,) = children_of(os.getpid(), "processes.agent")
        os.kill(agent, signal.SIGKILL)
        found = await stage.until(
            "steady",
            lambda found: (
                found["status"]["containerStatuses"][0]["restartCount"] == 1 and state(found)[0] == "running"
            ),
        )
        assert found["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "Unknown"

    play(story)


def test_a_pod_that_never_started_can_be_deleted():
    async def story(stage):
        await stage.create(pod("imageless"))
        await stage.until(
            "imageless", lambda found: found and state(found) and state(found)[1].get("message")
        )
        await stage.client.delete(PODS, "imageless", "default")
        await stage.until("imageless", lambda found: found is None)

    play(story)


def test_crashed_node_ends_its_containers_and_reports_them_when_it_is_back():
    async def story(stage):
        marker = f"sleep 89{os.getpid()}"
        await stage.create(shell("steady", f"{marker} & {marker}", policy="Always"))
        await stage.ready("steady")
        fail = {"metadata": {"annotations": {"sim.pykueue.io/fail": "crash"}}}
        await stage.client.patch(NODES, "n-0", None, fail)
        await stage.eventually(lambda: not commands(marker))
        assert state(await stage.pod("steady"))[0] == "running"
        back = {"metadata": {"annotations": {"sim.pykueue.io/fail": None}}}
        await stage.client.patch(NODES, "n-0", None, back)
        found = await stage.until(
            "steady", lambda found: found["status"]["containerStatuses"][0]["restartCount"] == 1
        )
        last = found["status"]["containerStatuses"][0]["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"]) == (255, "Unknown")

    play(story)


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"tailLines": "x"},
        {"limitBytes": "0"},
        {"sinceSeconds": "1.5"},
        {"sinceTime": "noon"},
    ],
)
def test_questions_for_logs_that_make_no_sense_are_refused(query):
    async def nothing(*_):
        yield b""

    with pytest.raises(ApiError) as refused:
        pod_logs(*pod("p", "true")[:1], query, nothing)
    assert refused.value.code == 400


def children_of(parent, text):
    """The processes of a parent whose command line contains a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode()
            after = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if text in line and int(after[1]) == parent:
            found.append(int(entry.name))
    return found
