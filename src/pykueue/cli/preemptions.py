"""`pykueue preemptions`: the latest preemptions, their preemptors and the lost work."""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api.preemption_policies import PreemptionPolicy
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import conclude, read_source
from pykueue.plugin.tables import table
from pykueue.questions.preemptions import Preemptions, lost_text
from pykueue.questions.preemptions import preemptions as answer_preemptions


def run(source: SourceOptions, limit: int, output: str) -> None:
    """Carry out the command, whose options `questions` describes."""
    found = read_source(source)
    answer = answer_preemptions(found.workloads, found.objects(PreemptionPolicy), limit)
    conclude(found, answer, output, lines)


def lines(answer: Preemptions) -> Iterator[str]:
    """The answer as two tables."""
    titles = ["TIME", "PREEMPTED", "CLUSTERQUEUE", "FOR", "CLUSTERQUEUE", "REASON", "LOST"]
    rows = [
        [
            each.time,
            each.workload,
            each.cluster_queue or "-",
            each.preemptor or "-",
            each.preemptor_cluster_queue or "-",
            each.reason,
            lost_text(each.lost),
        ]
        for each in answer.recent
    ]
    yield from table(titles, rows).splitlines() if rows else ["No workload is known to have been preempted."]
    if answer.totals:
        yield ""
        titles = ["FOR", "PREEMPTED", "COUNT", "LOST", "POLICY"]
        rows = [
            [
                each.preemptor_cluster_queue,
                each.cluster_queue,
                str(each.count),
                lost_text(each.lost),
                each.policy,
            ]
            for each in answer.totals
        ]
        yield from table(titles, rows).splitlines()
