"""Real kubectl runs commands in containers that are processes."""

from __future__ import annotations

import hashlib
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up, kubectl_program

pytestmark = pytest.mark.kubectl

NODES = """
pools:
- {name: n, runtime: process, allocatable: {cpu: 8, memory: 8Gi, pods: 110}}
- {name: s, labels: {kind: simulated}, allocatable: {cpu: 8, memory: 8Gi, pods: 110}}
"""


@pytest.fixture(scope="module")
def kubectl(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    version = subprocess.run([kubectl_program(), "version", "--client"], capture_output=True, text=True)
    minor = int(version.stdout.partition(".")[2].partition(".")[0])
    if minor < 31:
        pytest.skip("kubectl before 1.31 does not exec by WebSocket")
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    found = kubectl_for(start_up("--nodes", str(nodes)))
    run(found, "steady", "n-0", "export SAID=by-the-shell; cd /; sleep 1000; true")
    run(found, "played", "s-0", "sleep 1000")
    for name in ("steady", "played"):
        found("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return found


def run(kubectl: Kubectl, name: str, node: str, script: str) -> None:
    overrides = f'{{"spec": {{"nodeName": "{node}"}}}}'
    options = ("--restart=Never", "--env=A=1", f"--overrides={overrides}", "--command")
    kubectl("run", name, "--image=x", *options, "--", "bash", "-c", script)


def test_output_errors_and_exit_codes(kubectl: Kubectl) -> None:
    code, out, err = kubectl.run(
        "exec", "steady", "--", "bash", "-c", "echo $A $HOSTNAME; echo oops >&2; exit 5"
    )
    assert (code, out) == (5, "1 steady\n")
    assert err == "oops\ncommand terminated with exit code 5\n"
    assert kubectl("exec", "steady", "--", "true") == ""
    # Inside, the container's own processes are all there is.
    assert kubectl("exec", "steady", "--", "cat", "/proc/1/comm") == "bash\n"


def test_large_stdin_of_exec_arrives_completely(kubectl: Kubectl, tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(200_000))
    printed = kubectl("exec", "-i", "steady", "--", "sha1sum", stdin=text)
    assert printed.split()[0] == hashlib.sha1(text.encode()).hexdigest()
    assert kubectl("exec", "-i", "steady", "--", "cat", stdin=text) == text


def test_exec_with_tty_gets_a_pseudo_terminal(kubectl: Kubectl) -> None:
    ours, theirs = pty.openpty()
    command = ("--", "bash", "-c", "tty; read x; echo got $x")
    try:
        with kubectl.popen("exec", "-it", "steady", *command, stdin=theirs) as process:
            os.write(ours, b"word\n")
            assert process.stdout is not None
            printed = process.stdout.read()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "/dev/pts/" in printed
    assert "got word" in printed


def test_exec_into_a_container_that_does_not_run_names_the_reason(kubectl: Kubectl) -> None:
    assert "executable file not found in $PATH" in kubectl.refused("exec", "steady", "--", "no-such-program")
    assert "does not run as a process here" in kubectl.refused("exec", "played", "--", "true")
    assert "is not valid for pod" in kubectl.refused("exec", "steady", "-c", "other", "--", "true")


def test_exec_command_ends_when_its_client_disconnects(kubectl: Kubectl) -> None:
    with kubectl.popen("exec", "steady", "--", "bash", "-c", "echo up; sleep 998877; true") as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "up\n"
        asking.kill()
        asking.communicate()
    look = ("exec", "steady", "--", "bash", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    while "998877" in kubectl(*look):
        pass
