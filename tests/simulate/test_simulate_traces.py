"""Public traces: each format read from small files written in it, and what is wrong with broken ones."""
# ruff: noqa: E501 (the tables of cases are one case a line)

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest
import yaml
from click.testing import CliRunner, Result
from test_simulate_scenarios import outcome_of, queue

from pykueue.cli.trace import trace
from pykueue.simulate.figures import figure
from pykueue.simulate.measures import INTERVALS_MAX, Usage
from pykueue.simulate.prepare import prepare
from pykueue.simulate.runs import run
from pykueue.simulate.scenario.reading import ScenarioError, load
from pykueue.simulate.traces.formats import READERS
from pykueue.simulate.traces.record import Record, TraceError
from pykueue.simulate.traces.summary import summarized

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vc0,16,64,2,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:10,2020-04-01 00:10:10,600,10
2,u2,vc1,0,4,1,FAILED,2020-04-01 00:01:00,2020-04-01 00:01:00,2020-04-01 00:02:00,60,0
"""
ACME = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time,mem_per_pod_GB
a,u,4,32,128,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:00+08:00,2023-03-01 01:00:00+08:00,3600,0,115200,64
"""
PHILLY = [
    {
        "jobid": "application_1",
        "vc": "6214e9",
        "user": "ce2",
        "status": "Pass",
        "submitted_time": "2017-10-09 07:01:55",
        "attempts": [
            {
                "start_time": "2017-10-09 07:02:00",
                "end_time": "2017-10-09 07:03:00",
                "detail": [{"ip": "m1", "gpus": ["g0", "g1"]}, {"ip": "m2", "gpus": ["g0", "g1"]}],
            },
            {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 08:04:00", "detail": []},
        ],
    }
]
PHILLY_TEXT = json.dumps(PHILLY, indent=2)
PAI_JOBS = "j1,i1,u1,Terminated,100,700\nj2,i2,u2,Running,200,\n"
PAI_TASKS = "j1,worker,3,Terminated,100,700,600,29.3,50,V100\nj1,ps,1,Terminated,100,700,600,29.3,0,\n"
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0
openb-pod-0001,6000,12288,2,1000,V100M16|V100M32,BE,Failed,100,700,130
"""
SPOT = """job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
j,org-1,A100,16,8,4,60,7200,Spot
"""
SWF = """; Version: 2.2
; UnixStartTime: 1000000000
; MaxProcs: 128
1 0 30 600 16 -1 -1 16 3600 -1 1 5 2 1 3 1 -1 -1
2 60 -1 -1 -1 -1 -1 8 1800 1024 0 6 2 1 -1 2 -1 -1
"""


def first(folder: Path, name: str, format: str, text: str, zone: str = "UTC") -> list[Record]:
    file = folder / name
    file.write_text(text)
    return list(READERS[format](file, ZoneInfo(zone)))


def test_helios(tmp_path: Path) -> None:
    big, small = first(tmp_path, "cluster_log.csv", "helios", HELIOS, "Asia/Shanghai")
    assert (big.pods, big.gpus, big.cpu, big.run_time, big.waited) == (2, 8, 32, 600, 10)
    assert (big.queue, big.user, big.job_class, big.failed) == ("vc0", "u1", "gpu", False)
    # Midnight in Shanghai is 16 hours UTC of the day before.
    assert big.submitted == 1585670400.0
    assert (small.job_class, small.failed) == ("cpu", True)


def test_acme(tmp_path: Path) -> None:
    [record] = first(tmp_path, "trace.csv", "acme", ACME)
    assert (record.pods, record.gpus, record.memory, record.job_class) == (4, 8, 64 * 1024**3, "Pretrain")
    assert record.submitted == 1677600000.0  # the zone that stands in the trace goes before the one given


def test_philly_adds_the_attempts_up(tmp_path: Path) -> None:
    [record] = first(tmp_path, "cluster_job_log", "philly", json.dumps(PHILLY))
    assert (record.run_time, record.pods, record.gpus, record.queue) == (300.0, 2, 2, "6214e9")


def test_alibaba_2020_reads_the_tasks_beside_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    done, running = first(tmp_path, "pai_job_table.csv", "alibaba2020", PAI_JOBS)
    assert (done.pods, done.cpu, done.gpus, done.gpu_model, done.run_time) == (3, 6, 0.5, "V100", 600)
    assert running.run_time is None


def test_alibaba_2023(tmp_path: Path) -> None:
    never = "openb-pod-0002,6000,12288,1,1000,,BE,Pending,100,700,\n"
    _, record, pending = first(tmp_path, "openb.csv", "alibaba2023", OPENB + never)
    assert (pending.run_time, pending.waited) == (None, None)  # it was deleted before it was scheduled
    assert (record.cpu, record.gpus, record.gpu_model, record.waited) == (6, 2, "V100M16|V100M32", 30)
    assert (record.run_time, record.failed, record.memory) == (570, True, 12 * 1024**3)


def test_alibaba_2026(tmp_path: Path) -> None:
    [record] = first(tmp_path, "jobs.csv", "alibaba2026", SPOT)
    assert (record.queue, record.pods, record.gpus, record.job_class) == ("org-1", 4, 8, "Spot")


def test_standard_workload_format(tmp_path: Path) -> None:
    ran, never = first(tmp_path, "log.swf", "swf", SWF)
    assert (ran.submitted, ran.run_time, ran.pods, ran.limit, ran.waited) == (1e9, 600, 16, 3600, 30)
    assert (ran.queue, ran.cluster, never.queue, never.run_time) == ("3", "1", "2", None)


def test_a_compressed_trace_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress(HELIOS.encode()))
    assert len(list(READERS["helios"](file, ZoneInfo("UTC")))) == 2


def cut(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("format", "text", "error"),
    [
        ("helios", "", "trace:1: empty; accepted: a table with the columns job_id"),
        ("helios", cut(HELIOS, ",vc,", ",cluster,"), "trace:1: no column vc; the columns are job_id"),
        ("helios", cut(HELIOS, "16,64", "many,64"), "trace:2: gpu_num: 'many' is not a number"),
        ("helios", cut(HELIOS, ",60,0", ",-60,0"), "trace:3: duration: -60 is not accepted"),
        ("helios", cut(HELIOS, "2020-04-01 00:01:00", "soon"), "trace:3: submit_time: 'soon' is not a date"),
        ("helios", HELIOS[:-20], "trace:3: 10 cells; accepted: 12"),
        ("helios", HELIOS + "x" * (2 << 20), "trace:4: line of more than 1048576 characters"),
        ("philly", '[{"jobid": 1', "trace:1: column 13: unexpected end of data"),
        ("philly", '[{"jobid": "1"}]', "trace:1: Object missing required field `vc`"),
        ("philly", cut(PHILLY_TEXT, '"user": "ce2"', '"user": ce2'), "trace:5: column 13: Expecting value"),
        ("philly", PHILLY_TEXT[:-20], f"column {len(PHILLY_TEXT[:-20].splitlines()[-1]) + 1}: unexpected end of data"),
        ("philly", PHILLY_TEXT + "]", "column 2: text after the end of the list"),
        ("philly", cut(PHILLY_TEXT, "02:00", "soon"), "trace:2: start_time: '2017-10-09 07:soon' is not a date"),
        ("philly", '{"jobs": []}', "trace:1: column 1: not a JSON list"),
        ("philly", "", "trace:1: column 1: not a JSON list"),
        ("philly", "[1\n2]", "trace:1: Expected `object`, got `int`"),
        ("philly", "[" * 100_000, "trace:1: column 2: nested too deep"),
        ("philly", '[{"jobid": "' + "x" * (2 << 20), "a job of more than 1048576 characters"),
        ("alibaba2023", cut(OPENB, "100,700,130", "100,50,130"), "trace:3: deletion_time: before creation_time"),
        ("alibaba2023", cut(OPENB, "100,700,130", "100,700,800"), "trace:3: deletion_time: before scheduled_time"),
        ("swf", "", "trace:1: no jobs; accepted: lines of 18 fields"),
        ("swf", "; UnixStartTime: 5\n;\n", "trace:2: no jobs; accepted: lines of 18 fields"),
        ("swf", cut(SWF, " -1 -1\n2", " -1\n2"), "trace:4: 17 fields; accepted: 18"),
        ("swf", cut(SWF, "1 0 30 600", "1 0 30 x"), "trace:4: field 4: 'x' is not a number"),
        ("swf", cut(SWF, "1 0 30 600", "1 -1 30 600"), "trace:4: field 2: -1 is not accepted"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_trace_is_named_by_line_and_column(
    tmp_path: Path, format: str, text: str, error: str
) -> None:
    with pytest.raises(TraceError) as raised:
        first(tmp_path, "trace", format, text)
    assert error in str(raised.value)


def test_philly_is_read_as_a_stream(tmp_path: Path) -> None:
    file = tmp_path / "cluster_job_log"
    whole = json.dumps(PHILLY * 1000, indent=1)
    file.write_text(whole[: len(whole) - 100_000])
    read = []
    with pytest.raises(TraceError, match="unexpected end of data"):
        read.extend(READERS["philly"](file, ZoneInfo("UTC")))
    # What comes before the broken end is given.
    assert 500 < len(read) < 1000
    assert (read[0].line, {record.run_time for record in read}) == (2, {300.0})
    # Lines are those of the file, whatever the parts in which it was read.
    file.write_text(whole)
    lines = whole.splitlines()
    assert all(lines[record.line - 1] == " {" for record in READERS["philly"](file, ZoneInfo("UTC")))


@pytest.mark.parametrize(
    ("format", "content", "error"),
    [
        ("helios", HELIOS.encode() + b"3,\xff\xfe\n", "trace:4: column 3: not UTF-8 text"),
        ("helios", HELIOS.encode("utf-16"), "trace:1: column 1: not UTF-8 text"),
        ("helios", HELIOS.replace("u2", "jürgen").encode("latin-1"), "trace:3: column 4: not UTF-8 text"),
        ("philly", PHILLY_TEXT.replace("ce2", "jürgen").encode("latin-1"), "trace:5: column 15: not UTF-8 text"),
        ("philly", PHILLY_TEXT.replace("ce2", "\\ud800").encode(), "trace:2: a string has half of a surrogate pair"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_are_named_by_line_and_column(
    tmp_path: Path, format: str, content: bytes, error: str
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(TraceError) as raised:
        list(READERS[format](file, ZoneInfo("UTC")))
    assert error in str(raised.value)


def test_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    assert len(first(tmp_path, "log.csv", "helios", "\ufeff" + HELIOS)) == 2


TRACES = {
    "acme": ACME,
    "alibaba2020": PAI_JOBS,
    "alibaba2023": OPENB,
    "alibaba2026": SPOT,
    "helios": HELIOS,
    "philly": PHILLY_TEXT,
    "swf": SWF,
}


@pytest.mark.parametrize("format", ["helios", "philly"])
def test_damaged_compressed_trace_is_an_error_with_a_line(tmp_path: Path, format: str) -> None:
    """Single bytes of the packed data are changed; what can be read all the same is read."""
    file = tmp_path / "trace.gz"
    packed = gzip.compress(TRACES[format].encode(), mtime=0)
    errors, places = [], range(0, len(packed), 3)
    for at in places:
        file.write_bytes(packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :])
        try:
            list(READERS[format](file, ZoneInfo("UTC")))
        except TraceError as error:
            errors.append(str(error))
    assert all(re.match(rf"{file}:\d+: ", error) for error in errors)
    assert len(errors) > len(places) // 2


#: What takes the place of a cell, or stands between two.
_ODD = (
    "", "-1", "nan", "inf", "1e400", "9" * 400, "\0", '"', "\n", ",", "\ufeff", "null", "[]", "{}", "1_000",
    "0001-01-01 00:00:00", "9999-12-31 23:59:59-12:00", "2020-04-01T00:00:00+25:00", "\\ud800",
)  # fmt: skip


@pytest.mark.parametrize("format", sorted(TRACES))
def test_traces_with_random_faults_are_read_or_refused_with_a_line(tmp_path: Path, format: str) -> None:
    random = Random(format)
    errors = []
    for _ in range(60):
        text = TRACES[format]
        for _ in range(random.randint(1, 3)):
            start, end = random.choice([found.span() for found in re.finditer(r'[^,\s":\[\]{}]+', text)])
            text = text[:start] + random.choice(_ODD) + text[random.choice((start, end)) :]
        if random.random() < 0.2:
            text = text[: random.randrange(len(text))]
        try:
            summarized(iter(first(tmp_path, "trace", format, text)))
        except TraceError as error:
            errors.append(str(error))
    assert all(re.match(rf"{tmp_path / 'trace'}:\d+: ", error) for error in errors)


def test_trace_of_which_nothing_ran_is_named(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    file.write_text(SWF.splitlines()[-1])
    found = CliRunner().invoke(trace, ["fit", str(file), "--format", "swf", "--output", str(tmp_path)])
    assert (found.exit_code, found.stderr) == (2, f"Error: {file}: no job of the trace ran\n")


@pytest.fixture
def traced(tmp_path: Path) -> Callable[..., dict[str, object]]:
    """A scenario of the trace, on a queue with room for one of its jobs at a time."""

    def scenario(**more: object) -> dict[str, object]:
        (tmp_path / "log.swf").write_text(SWF + "3 120 -1 60 4 -1 -1 4 90 -1 1 7 2 1 3 1 -1 -1\n")
        (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(queue("q3", 16)))
        trace = {"file": "log.swf", "format": "swf", "queue": "team/q{queue}", **more}
        return {"name": "t", "manifests": ["queues.yaml"], "arrivals": [{"trace": trace}]}

    return scenario


def test_a_trace_is_simulated_with_its_queues_sizes_and_run_times(
    tmp_path: Path, traced: Callable[..., dict[str, object]]
) -> None:
    found = outcome_of(tmp_path, traced())
    assert (figure(found, "created"), figure(found, "finished")) == (2, 2)
    assert figure(found, "wait.max") == 480.0  # submitted after 120 s, when 16 of 16 processors were used
    assert found.makespan == 660.0


def test_a_trace_can_be_thinned_repeated_and_sped_up(
    tmp_path: Path, traced: Callable[..., dict[str, object]]
) -> None:
    assert figure(outcome_of(tmp_path, traced(scale=0.5)), "created") == 1
    assert figure(outcome_of(tmp_path, traced(scale=3)), "created") == 6
    assert figure(outcome_of(tmp_path, traced(speed=2)), "wait.max") == 540.0
    assert figure(outcome_of(tmp_path, traced(jobsMax=1)), "created") == 1
    assert outcome_of(tmp_path, traced(runTime={"declared": 1})).makespan == 3690.0


def test_a_trace_with_an_error_ends_the_run_with_its_place(
    tmp_path: Path, traced: Callable[..., dict[str, object]]
) -> None:
    scenario = traced()
    (tmp_path / "log.swf").write_text(SWF + "3 nothing\n")
    with pytest.raises(ScenarioError, match=r"arrivals\[0\]\.trace: .*log\.swf:6: 2 fields; accepted: 18"):
        outcome_of(tmp_path, scenario)


def test_job_of_a_trace_in_an_unknown_queue_is_refused_with_its_line(
    tmp_path: Path, traced: Callable[..., dict[str, object]]
) -> None:
    with pytest.raises(ScenarioError) as raised:
        outcome_of(tmp_path, traced(queue="team/r{queue}"))
    assert f"{tmp_path / 'log.swf'}:4: LocalQueue team/r3 of job 1 is not among the manifests" in str(
        raised.value
    )


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(trace, [str(each) for each in arguments])


def test_description_shows_arrivals_sizes_and_run_times(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(HELIOS)
    text = invoke("describe", file, "--format", "helios").stdout
    assert text.startswith("log.csv: 2 jobs, 2 of them ran\n")
    assert "submissions by day and hour (UTC)" in text
    assert re.search(r"^16-31 +1 +█+$", text, re.M), text
    found = json.loads(invoke("describe", file, "--format", "helios", "-o", "json").stdout)
    assert (found["jobs"], found["runTime"]["max"], sum(found["week"])) == (2, 600.0, 2)


def test_description_of_a_broken_trace_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(HELIOS[:-20])
    broken = invoke("describe", file, "--format", "helios")
    assert (broken.exit_code, broken.stderr) == (2, f"Error: {file}:3: 10 cells; accepted: 12\n")
    assert "is not a time zone" in invoke("describe", file, "--format", "helios", "--time-zone", "x").stderr


def test_fitted_scenario_has_the_load_of_its_trace_and_none_of_its_names(tmp_path: Path) -> None:
    random = Random(3)
    lines, at = ["; UnixStartTime: 1000000000"], 0.0
    for number in range(1, 3001):
        at += random.expovariate(1 / 600)
        length, size = random.lognormvariate(6, 1), random.choice((1, 4))
        lines.append(f"{number} {at:.0f} 0 {length:.0f} {size} -1 -1 {size} -1 -1 1 7 2 1 {size} 1 -1 -1")
    file = tmp_path / "secret.swf"
    file.write_text("\n".join(lines) + "\n")
    done = invoke("fit", file, "--format", "swf", "--anonymous", "--output", tmp_path / "fit")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "fit" / "scenario.yaml").read_text()
    assert "secret" not in text
    prepared = prepare(load(tmp_path / "fit" / "scenario.yaml"), tmp_path / "fit")
    found = run(prepared, prepared.variants[0], 1)
    assert figure(found, "created") == pytest.approx(7 * 24 * 6, rel=0.15)
    records = list(READERS["swf"](file, ZoneInfo("UTC")))
    held = sum(one.pods * (one.run_time or 0) for one in records) / at
    assert figure(found, "used") / (7 * 24 * 3600) == pytest.approx(held, rel=0.25)


def test_memory_of_series_does_not_grow_with_time() -> None:
    usage = Usage(1.0)
    for second in range(10_000):
        usage.change(1.0 if second % 2 == 0 else -1.0, float(second))
    assert len(usage.intervals) <= INTERVALS_MAX
    assert sum(usage.intervals) == pytest.approx(usage.area)
    assert usage.width == 16.0


def test_description_of_a_trace_as_a_page(tmp_path: Path) -> None:
    file = tmp_path / "<b>log.swf"
    file.write_text(SWF)
    page = tmp_path / "trace.html"
    found = CliRunner().invoke(trace, ["describe", str(file), "--format", "swf", "--html", str(page)])
    assert found.exit_code == 0, found.output
    text = page.read_text()
    assert "<h1>&lt;b&gt;log.swf</h1>" in text
    assert "2 jobs, 1 of them ran" in text
    sections = ("arrivals", "run-times", "waits", "gpus", "pods", "queues", "classes")
    assert re.findall('<section id="([a-z-]+)">', text) == list(sections)
    (data,) = re.findall('<script type="application/json" id="data">(.*?)</script>', text)
    charts = json.loads(data)["charts"]
    assert charts["pods-0"]["data"][0]["x"] == ["16"]
    assert sum(charts["arrivals-0"]["data"][0]["y"]) == 2
