"""The formats of public traces. Source of their fields: docs/reference/simulation.md 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from .json_list import elements
from .record import Reader, Record, TraceError
from .tables import Row, lines, rows

_GIB: Final = 1024.0**3
_MIB: Final = 1024.0**2
_KIB: Final = 1024.0

#: States of a job that came to its end by a failure.
_FAILED: Final = frozenset({"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"})


def helios(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """`cluster_log.csv` of Helios: one row for each job; times without a zone."""
    required = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "duration")
    for row in rows(file, required):
        yield _job_row(row, zone, row.text("vc"))


def acme(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """A trace file of Acme: as Helios, with the stage of the model in `type` instead of a virtual cluster."""
    required = (
        "job_id",
        "user",
        "node_num",
        "gpu_num",
        "cpu_num",
        "type",
        "state",
        "submit_time",
        "duration",
    )
    for row in rows(file, required):
        record = _job_row(row, zone, row.text("type"))
        record.job_class = row.text("type")
        record.memory = row.number("mem_per_pod_GB", 0.0) * _GIB
        yield record


def _job_row(row: Row, zone: ZoneInfo, queue: str) -> Record:
    submitted = row.time("submit_time", zone)
    if submitted is None:
        raise row.error("submit_time", "no value; accepted: a date and time")
    nodes = max(1, int(row.number("node_num", 1.0)))
    duration = row.number("duration", -0.0)
    state = row.text("state").upper()
    waited = row.number("queue", 0.0) if row.text("queue") else None
    gpus, cpus = row.number("gpu_num", 0.0), row.number("cpu_num", 0.0)
    return Record(
        name=row.text("job_id"),
        submitted=submitted,
        run_time=duration if row.text("duration") else None,
        pods=nodes,
        gpus=gpus / nodes,
        cpu=cpus / nodes,
        user=row.text("user"),
        queue=queue,
        group=queue,
        job_class="gpu" if gpus else "cpu",
        waited=waited,
        failed=state in _FAILED,
        line=row.line,
    )


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[dict[str, Any]] = []


class _PhillyJob(msgspec.Struct):
    jobid: str
    vc: str
    user: str
    status: str
    submitted_time: str | None = None
    attempts: list[_Attempt] = []


def philly(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """`cluster_job_log` of Philly: a JSON list of jobs with their attempts, read as a stream."""
    for number, element in elements(file):
        try:
            job = msgspec.convert(element, _PhillyJob, strict=False)
            f"{job.jobid}{job.vc}{job.user}".encode()  # raises for what JSON can escape and is no character
        except msgspec.ValidationError as error:
            raise TraceError(file, number, "", str(error)) from None
        except UnicodeEncodeError:
            raise TraceError(file, number, "", "a string has half of a surrogate pair") from None
        row = Row(file, number, {"submitted_time": job.submitted_time or ""})
        submitted = row.time("submitted_time", zone)
        if submitted is None:
            continue
        run, timed = 0.0, False
        for attempt in job.attempts:
            cells = {"start_time": attempt.start_time or "", "end_time": attempt.end_time or ""}
            times = Row(file, number, cells)
            begin, end = times.time("start_time", zone), times.time("end_time", zone)
            if begin is not None and end is not None:
                if end < begin:
                    raise times.error("attempts.end_time", "before start_time")
                run, timed = run + end - begin, True
        hosts = [len(host.get("gpus") or ()) for host in (job.attempts[0].detail if job.attempts else ())]
        pods = max(1, len(hosts))
        yield Record(
            name=job.jobid,
            submitted=submitted,
            run_time=run if timed else None,
            pods=pods,
            gpus=float(max(hosts, default=0)),
            user=job.user,
            queue=job.vc,
            group=job.vc,
            job_class=f"{sum(hosts)} GPUs",
            failed=job.status == "Failed",
            line=number,
        )


_PAI_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")


def alibaba2020(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """The job table of Alibaba's GPU trace of 2020, with its task table (`pai_task_table.csv`) beside it.

    Times are seconds; `plan_cpu` and `plan_gpu` are hundredths. Of several tasks of a job, the one with most
    accelerators counts.
    """
    tasks: dict[str, Row] = {}
    beside = file.with_name(file.name.replace("job", "task"))
    if beside != file and beside.exists():
        columns = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time")
        more = ("plan_cpu", "plan_mem", "plan_gpu", "gpu_type")
        for row in rows(beside, (), (*columns, *more)):
            known = tasks.get(row.text("job_name"))
            if known is None or row.number("plan_gpu", 0.0) > known.number("plan_gpu", 0.0):
                tasks[row.text("job_name")] = row
    for row in rows(file, (), _PAI_JOB):
        if not row.text("start_time"):
            continue
        begin, end = row.number("start_time"), row.number("end_time", 0.0)
        if end and end < begin:
            raise row.error("end_time", "before start_time")
        record = Record(
            name=row.text("job_name"),
            submitted=begin,
            run_time=end - begin if end else None,
            user=row.text("user"),
            job_class="job",
            failed=row.text("status") != "Terminated",
            line=row.line,
        )
        task = tasks.get(record.name)
        if task is not None:
            record.pods = max(1, int(task.number("inst_num", 1.0)))
            record.cpu = task.number("plan_cpu", 0.0) / 100
            record.memory = task.number("plan_mem", 0.0) * _GIB
            record.gpus = task.number("plan_gpu", 0.0) / 100
            record.gpu_model = record.queue = record.group = task.text("gpu_type")
        yield record


def alibaba2023(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """The pod list of Alibaba's GPU trace of 2023 (openb): times in seconds from its start."""
    required = (
        "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time",
        "scheduled_time",
    )  # fmt: skip
    for row in rows(file, required):
        created, deleted = row.number("creation_time"), row.number("deletion_time", 0.0)
        if deleted and deleted < created:
            raise row.error("deletion_time", "before creation_time")
        scheduled = row.number("scheduled_time", -1.0)
        if deleted and deleted < scheduled:
            raise row.error("deletion_time", "before scheduled_time")
        share = row.number("gpu_milli", 1000.0) / 1000
        yield Record(
            name=row.text("name"),
            submitted=created,
            run_time=deleted - scheduled if deleted and scheduled >= 0 else None,
            cpu=row.number("cpu_milli") / 1000,
            memory=row.number("memory_mib") * _MIB,
            gpus=row.number("num_gpu") * share,
            gpu_model=row.text("gpu_spec"),
            queue=row.text("qos"),
            group=row.text("qos"),
            job_class=row.text("qos"),
            waited=max(0.0, scheduled - created) if scheduled >= 0 else None,
            failed=row.text("pod_phase") == "Failed",
            line=row.line,
        )


def alibaba2026(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """The job list of Alibaba's spot trace of 2026: times in seconds from its start, HP or Spot."""
    required = (
        "job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num", "submit_time",
        "duration", "job_type",
    )  # fmt: skip
    for row in rows(file, required):
        yield Record(
            name=row.text("job_name"),
            submitted=row.number("submit_time"),
            run_time=row.number("duration"),
            pods=max(1, int(row.number("worker_num", 1.0))),
            cpu=row.number("cpu_request", 0.0),
            gpus=row.number("gpu_request", 0.0),
            gpu_model=row.text("gpu_model"),
            queue=row.text("organization"),
            group=row.text("organization"),
            job_class=row.text("job_type"),
            line=row.line,
        )


#: Fields of a line of the Standard Workload Format, counted from 1.
_SWF_FIELDS: Final = 18


def swf(file: Path, zone: ZoneInfo) -> Iterator[Record]:
    """The Standard Workload Format: 18 numbers a line, -1 where one is missing, comments after `;`.

    Times are seconds from the `UnixStartTime` of the header. A processor is one core.
    """
    begin, number, has_jobs = 0.0, 1, False
    for number, line in lines(file):
        text = line.strip()
        if text.startswith(";"):
            name, _, value = text.lstrip("; ").partition(":")
            if name.strip() == "UnixStartTime":
                begin = Row(file, number, {"UnixStartTime": value}).number("UnixStartTime")
            continue
        if not text:
            continue
        has_jobs = True
        cells = text.split()
        if len(cells) != _SWF_FIELDS:
            raise TraceError(file, number, "", f"{len(cells)} fields; accepted: {_SWF_FIELDS}")
        values = [_swf_number(file, number, index, cell) for index, cell in enumerate(cells, 1)]
        job, submit, wait, run, used = values[:5]
        asked, limit, memory = values[7:10]
        user, group, queue, partition = values[11], values[12], values[14], values[15]
        if submit < 0:
            raise TraceError(file, number, "field 2", f"{cells[1]} is not accepted; accepted: a submit time")
        processors = asked if asked > 0 else used
        yield Record(
            name=str(int(job)),
            submitted=begin + submit,
            run_time=run if run >= 0 else None,
            pods=max(1, int(processors)),
            cpu=1.0,
            memory=max(0.0, memory) * _KIB,
            user=_swf_name(user),
            group=_swf_name(group),
            queue=_swf_name(queue if queue >= 0 else partition),
            cluster=_swf_name(partition),
            job_class="job",
            limit=limit if limit > 0 else None,
            waited=wait if wait >= 0 else None,
            failed=values[10] == 0,
            line=number,
        )
    if not has_jobs:
        raise TraceError(file, number, "", f"no jobs; accepted: lines of {_SWF_FIELDS} fields")


def _swf_number(file: Path, line: int, index: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise TraceError(file, line, f"field {index}", f"{text!r} is not a number") from None
    if value < -1 or not value < 1e18:
        raise TraceError(file, line, f"field {index}", f"{text} is not accepted; accepted: -1 or more")
    return value


def _swf_name(value: float) -> str:
    return str(int(value)) if value >= 0 else ""


#: Format -> its reader.
READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "acme": acme,
        "alibaba2020": alibaba2020,
        "alibaba2023": alibaba2023,
        "alibaba2026": alibaba2026,
        "helios": helios,
        "philly": philly,
        "swf": swf,
    }
)
