"""`pykueue share`: what each queue is entitled to, and what it has and has used."""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.cli.amounts import rounded, weighted_share
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import conclude, read_source
from pykueue.plugin.tables import table
from pykueue.questions.share import Shares, shares


def run(source: SourceOptions, output: str) -> None:
    """Carry out the command, whose options `questions` describes."""
    found = read_source(source)
    answer = shares(found.engine)
    conclude(found, answer, output, lines)


def lines(answer: Shares) -> Iterator[str]:
    """The answer as a table."""
    rows = []
    for queue in answer.queues:
        weighted = weighted_share(queue.weighted_share)
        name = "  " * queue.depth + queue.name
        for number, each in enumerate(queue.resources):
            head = [name, queue.kind, f"{queue.weight:g}", weighted] if not number else ["", "", "", ""]
            amounts = [each.demand, each.entitled, each.received, each.borrowed, each.lent, each.debt]
            rows.append([*head, each.resource, *(rounded(each.resource, amount) for amount in amounts)])
    titles = "NAME KIND WEIGHT WEIGHTED-SHARE RESOURCE DEMAND ENTITLED RECEIVED BORROWED LENT DEBT"
    yield from table(titles.split(), rows).splitlines()
    if answer.past_usage:
        yield ""
        yield from _past_usage(answer).splitlines()


def _past_usage(answer: Shares) -> str:
    """A table of the past usage of LocalQueues."""
    rows = []
    for queue in answer.past_usage:
        for number, (resource, amount) in enumerate(queue.amounts.items()):
            head = ["", "", "", ""]
            if not number:
                head = [queue.namespace, queue.name, queue.cluster_queue, f"{queue.weight:g}"]
            rows.append([*head, resource, rounded(resource, amount), queue.last_update])
    titles = "NAMESPACE LOCALQUEUE CLUSTERQUEUE WEIGHT RESOURCE PAST-USAGE LAST-UPDATE"
    return table(titles.split(), rows)
