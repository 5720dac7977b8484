"""What simulated nodes understand: commands, annotations, durations, and when siblings have gathered."""

import math
import random

import pytest

from pykueue.embedded.nodes.addresses import Addresses
from pykueue.embedded.nodes.annotations import DOMAIN
from pykueue.embedded.nodes.behaviour import Program, as_annotations, read
from pykueue.embedded.nodes.commands import understand
from pykueue.embedded.nodes.durations import format_span, parse_duration, parse_span
from pykueue.embedded.nodes.siblings import Families, Interval, gathered

FOREVER = math.inf


@pytest.mark.parametrize(
    ("command", "seconds", "exit_code"),
    [
        (["sleep", "5"], 5, 0),
        (["/bin/sleep", "1.5"], 1.5, 0),
        (["sleep", "1m", "30s"], 90, 0),
        (["sleep", "infinity"], FOREVER, 0),
        (["exit", "3"], 0, 3),
        (["true"], 0, 0),
        (["false"], 0, 1),
        (["echo", "hello"], 0, 0),
        (["sh", "-c", "sleep 5 && exit 2"], 5, 2),
        (["bash", "-c", 'echo "Hello; world"'], 0, 0),
        (["/bin/sh", "-ec", "sleep 1; sleep 2\nexit 4\nsleep 9"], 3, 4),
        (["sh", "-c", "false && sleep 5"], 0, 1),
        (["sh", "-c", "false || sleep 5"], 5, 0),
        (["sh", "-c", "echo start; exec sleep 7"], 7, 0),
        (["sh", "-c", "while true; do sleep 1; done"], FOREVER, 0),
        (["tail", "-f", "/dev/null"], FOREVER, 0),
    ],
)
def test_plain_commands_are_understood(command, seconds, exit_code):
    assert understand({"image": "busybox", "command": command}) == (seconds, exit_code)
    assert understand({"image": "busybox", "command": command[:1], "args": command[1:]}) == (
        seconds,
        exit_code,
    )


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["python", "-m", "worker"],
        ["sleep"],
        ["sleep", "$N"],
        ["exit", "$?"],
        ["sh"],
        ["sh", "script.sh"],
        ["sh", "-c", "sleep 5 | cat"],
        ["sh", "-c", "(sleep 5)"],
        ["sh", "-c", "sleep 5 &"],
        ["sh", "-c", "echo 'unclosed"],
        ["sh", "-c", "./train.sh; sleep 5"],
    ],
)
def test_other_programs_are_not_guessed(command):
    assert understand({"image": "busybox", "command": command}) is None


@pytest.mark.parametrize(
    ("image", "args", "seconds"),
    [
        ("registry.k8s.io/pause:3.9", [], FOREVER),
        ("gcr.io/k8s-staging-perf-tests/sleep:v0.1.0", ["30s"], 30),
        ("registry.k8s.io/e2e-test-images/agnhost:2.53", ["pause"], FOREVER),
        ("registry.k8s.io/e2e-test-images/agnhost:2.53", ["entrypoint-tester", "hello"], 0),
    ],
)
def test_images_of_the_usual_examples_are_known(image, args, seconds):
    assert understand({"image": image, "args": args}) == (seconds, 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), ("1.5s", 1.5), ("250ms", 0.25), ("1m30s", 90), ("1h", 3600), ("forever", FOREVER)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["0s", "250ms", "90s", "forever", "1s-5s", "100ms-2s"])
def test_ranges_are_written_as_they_are_read(text):
    assert format_span(parse_span(text)) == text


@pytest.mark.parametrize("text", ["", "abc", "-1s", "5s-1s", "1s-forever", "1s-", "1x", "1s 2s"])
def test_what_is_no_range_is_refused_by_name(text):
    with pytest.raises(ValueError, match=f"^{text!r} is n"):
        parse_span(text)


def program(pod=None, node=None, seed="", uid="u"):
    own, wrong = read({DOMAIN + key: value for key, value in (pod or {}).items()})
    defaults, more = read({DOMAIN + key: value for key, value in (node or {}).items()})
    assert not wrong
    assert not more
    return Program(own, defaults, seed, uid)


def container(*command):
    return {"name": "c", "image": "busybox", "command": list(command)}


def test_the_pod_outranks_the_command_and_the_command_the_node():
    node = {"run-time": "7s", "exit-code": "9"}
    assert program({"run-time": "3s"}, node).run(container("sleep", "5"), 0) == (3, 0)
    assert program({}, node).run(container("sleep", "5"), 0) == (5, 0)
    assert program({}, node).run(container("python"), 0) == (7, 9)
    assert program({"exit-code": "4"}, node).run(container("python"), 0) == (7, 4)


def test_an_unknown_program_runs_for_ten_seconds_or_for_good():
    assert program().run(container("python"), 0) == (10, 0)
    assert program().run(container("python"), 0, keep_running=True) == (FOREVER, 0)


def test_exit_codes_are_taken_run_by_run():
    failing = program({"exit-code": "1,2,0"})
    assert [failing.run(container("true"), restarts)[1] for restarts in range(5)] == [1, 2, 0, 0, 0]


def test_failures_come_at_their_rate_with_the_given_code():
    codes = [
        program({"failure-rate": "0.3", "exit-code": "42"}, uid=str(i)).run(container(), 0)[1]
        for i in range(1000)
    ]
    assert set(codes) == {0, 42}
    assert 250 < codes.count(42) < 350


def test_draws_follow_from_the_seed_and_the_pod_alone():
    range_ = {"start-delay": "1s-5s"}
    delays = [program(range_, uid=str(i)).start_delay for i in range(200)]
    assert delays == [program(range_, uid=str(i)).start_delay for i in range(200)]
    assert min(delays) >= 1
    assert max(delays) <= 5
    assert len(set(delays)) == 200
    assert program(range_, seed="other").start_delay != program(range_).start_delay


def test_bad_annotations_are_named_and_left_out():
    said, wrong = read(
        {DOMAIN + "run-time": "soon", DOMAIN + "exit-code": "256", DOMAIN + "start-delay": "2s"}
    )
    assert said.start_delay == (2, 2)
    assert (said.run_time, said.exit_code) == (None, None)
    assert [text.partition(": ")[0] for text in wrong] == [
        "annotation sim.pykueue.io/run-time",
        "annotation sim.pykueue.io/exit-code",
    ]
    assert "'soon' is neither a duration" in wrong[0]


def test_annotations_are_written_as_they_are_read():
    texts = {
        DOMAIN + key: value
        for key, value in {
            "start-delay": "1s-2s",
            "run-time": "forever",
            "exit-code": "1,0",
            "failure-rate": "0.1",
            "waits-for-siblings": "20",
            "ignores-sigterm": "true",
        }.items()
    }
    assert as_annotations(read(texts)[0]) == texts


@pytest.mark.parametrize(
    ("others", "wanted", "expected"),
    [
        ([], 1, 10),
        ([], 2, None),
        ([(5, None)], 2, 10),
        ([(5, 9)], 2, None),
        ([(15, None)], 2, 15),
        ([(12, 14), (15, None), (13, None)], 4, None),
        ([(12, 14), (15, None), (13, None)], 3, 13),
        ([(12, 15), (15, None), (13, None)], 4, 15),
    ],
)
def test_siblings_have_gathered_when_enough_ran_at_once(others, wanted, expected):
    intervals = [Interval(10), *(Interval(start, end) for start, end in others)]
    assert gathered(10, intervals, wanted) == expected


def test_siblings_that_have_succeeded_count_and_those_that_failed_do_not():
    families = Families()
    families.started("job", "a", 1)
    families.started("job", "b", 1)
    families.ended("job", "a", 1, 5, succeeded=True)
    families.ended("job", "b", 1, 5, succeeded=False)
    families.started("job", "c", 8)
    assert families.gathered("job", 8, 2) == 8
    assert families.gathered("job", 8, 3) is None


def test_a_sibling_that_is_gone_counts_for_those_that_still_run():
    families = Families()
    families.started("job", "a", 1)
    families.started("job", "b", 2)
    families.ended("job", "a", 1, 5, succeeded=False)
    families.forget("job", "a", 6)
    assert families.gathered("job", 2, 2) == 2
    families.forget("job", "b", 7)
    families.started("job", "c", 8)
    assert families.gathered("job", 8, 2) is None
    assert families.members("job") == ["c"]


def test_addresses_are_not_reused_soon():
    addresses = Addresses("10.0.0.0/29")
    addresses.reserve("10.0.0.2")
    first = addresses.take()
    addresses.release(first)
    assert [first, *(addresses.take() for _ in range(5))] == [
        *("10.0.0.1", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"),
        "10.0.0.1",
    ]
    with pytest.raises(LookupError):
        addresses.take()


def test_program_does_not_use_the_global_random_state():
    before = random.getstate()
    program({"start-delay": "1s-5s"})
    assert random.getstate() == before
