"""Parts of process nodes that need no process: log files, control groups, answers to questions for names."""

import struct

import pytest

from pykueue.embedded.nodes.processes.environment import expand
from pykueue.embedded.nodes.processes.limits import Limits, NoLimitsError, own_group
from pykueue.embedded.nodes.processes.logfile import LINE_LIMIT, LogFile, put_aside
from pykueue.embedded.nodes.processes.services import answer


def test_a_log_that_has_grown_is_put_aside_once(tmp_path):
    path = tmp_path / "0.log"
    log = LogFile(str(path), limit=1000)
    for number in range(40):
        log.write("stdout", f"line {number}\n".encode(), 0.0)
    log.close()
    kept = put_aside(path).read_text() + path.read_text()
    assert path.stat().st_size <= 1000
    assert kept.splitlines()[-1] == "1970-01-01T00:00:00.000000Z stdout F line 39"
    numbers = [int(line.rpartition(" ")[2]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 40))


def test_lines_are_joined_cut_and_ended(tmp_path):
    path = tmp_path / "0.log"
    log = LogFile(str(path))
    log.write("stdout", b"be", 0.0)
    log.write("stderr", b"other\n", 0.0)
    log.write("stdout", b"gin\n\n" + b"x" * (LINE_LIMIT + 1) + b"\nrest", 0.0)
    log.end("stdout", 0.0)
    log.close()
    shown = [line.split(" ", 3)[1:] for line in path.read_text().splitlines()]
    assert [(stream, tag, text[:5]) for stream, tag, text in shown] == [
        ("stderr", "F", "other"),
        ("stdout", "F", "begin"),
        ("stdout", "F", ""),
        ("stdout", "P", "xxxxx"),
        ("stdout", "F", "x"),
        ("stdout", "P", "rest"),
    ]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A) and $(B)", "one and $(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$A ${A} $() $(A", "$A ${A} $() $(A"),
    ],
)
def test_expansion(text, expanded):
    assert expand(text, {"A": "one"}) == expanded


@pytest.fixture
def groups(tmp_path):
    """What a control group hierarchy looks like from outside, without a kernel behind it."""
    group = tmp_path / "user.slice" / "own.scope"
    group.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    (tmp_path / "user.slice" / "cgroup.subtree_control").write_text("cpu memory pids")
    (group / "cgroup.subtree_control").write_text("")
    return tmp_path


def test_limits_are_written_below_the_nearest_group_that_hands_them_down(groups):
    limits = Limits.open(groups, own_group("12:pids:/x\n0::/user.slice/own.scope\n"))
    group = limits.add("a-main-0", 64 * 2**20, 0.5)
    assert group.parent.parent == groups / "user.slice"
    assert (group / "memory.max").read_text() == "67108864"
    assert (group / "cpu.max").read_text() == "50000 100000"
    assert not limits.out_of_memory(group)
    (group / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert limits.out_of_memory(group)


def test_no_limits_say_why(tmp_path, groups):
    (groups / "user.slice" / "cgroup.subtree_control").write_text("pids")
    (groups / "cgroup.subtree_control").write_text("")
    with pytest.raises(NoLimitsError, match="delegates the cpu and memory controllers"):
        Limits.open(groups, "/user.slice/own.scope")
    with pytest.raises(NoLimitsError, match="not mounted"):
        Limits.open(tmp_path / "elsewhere", "/")


class Names:
    def __init__(self, **known):
        self.known = known

    def lookup(self, name):
        return self.known.get(name)


def question(name, kind=1, flags=0x0100):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", 7, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


@pytest.mark.parametrize(
    ("query", "code", "count"),
    [
        (question("web"), 0, 2),
        (question("web", kind=28), 0, 0),
        (question("none"), 3, 0),
        (question("many"), 0, 24),
        (question("web", flags=0x2800), 4, 0),
        (question("web")[:20], 1, 0),
        (struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", 1, 0),
    ],
)
def test_answers_to_questions_for_names(query, code, count):
    names = Names(web=["10.0.0.1", "10.0.0.2"], many=[f"10.0.0.{n}" for n in range(1, 60)])
    packet = answer(query, names)
    identity, flags, _, answers, _, _ = struct.unpack_from(">HHHHHH", packet)
    assert (identity, flags >> 15, flags & 15, answers) == (7, 1, code, count)
    assert len(packet) <= 512


@pytest.mark.parametrize("noise", [b"", b"\0" * 11, question("web", flags=0x8000)])
def test_noise_is_not_answered(noise):
    assert answer(noise, Names()) == b""
