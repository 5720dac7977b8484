"""Pod failure policy and success policy. Source: docs/reference/cluster-workloads.md, 1.10 and 1.11."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.embedded.kinds.jobindexes import lenient_indexes

FAIL_JOB = "FailJob"
FAIL_INDEX = "FailIndex"
IGNORE = "Ignore"
COUNT = "Count"


class Verdict(NamedTuple):
    """What a policy says about one failed pod."""

    action: str
    #: Why, for people; only for FailJob.
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards a limit."""
        return self.action != IGNORE


def judge(policy: Object | None, pod: Object) -> Verdict:
    """The action of the first rule that matches a failed pod; Count when none does."""
    for position, rule in enumerate((policy or {}).get("rules") or ()):
        found = _match(rule, pod)
        if found is not None:
            action = str(rule.get("action"))
            return Verdict(action, f"{found} matching {action} rule at index {position}")
    return Verdict(COUNT)


def _match(rule: Object, pod: Object) -> str | None:
    """How the rule matches, in words."""
    status = pod.get("status") or {}
    pod_name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    codes = rule.get("onExitCodes")
    if codes is not None:
        for key in ("containerStatuses", "initContainerStatuses"):
            for container in status.get(key) or ():
                code = _exit_code(codes, container)
                if code is not None:
                    return (
                        f"Container {container.get('name')} for pod {pod_name} failed with exit code {code}"
                    )
        return None
    for pattern in rule.get("onPodConditions") or ():
        wanted = (pattern.get("type"), pattern.get("status") or "True")
        if any((one.get("type"), one.get("status")) == wanted for one in status.get("conditions") or ()):
            return f"Pod {pod_name} has condition {pattern.get('type')}"
    return None


def _exit_code(codes: Object, container: Object) -> int | None:
    """The exit code of a failed container, if the requirement is about it and matches."""
    terminated = (container.get("state") or {}).get("terminated")
    if not terminated or not terminated.get("exitCode"):
        return None
    if codes.get("containerName") not in (None, container.get("name")):
        return None
    code = int(terminated["exitCode"])
    listed = code in (codes.get("values") or ())
    return code if listed == (codes.get("operator") == "In") else None


def success_rule(policy: Object | None, succeeded: Iterable[int], completions: int) -> int | None:
    """The first success rule that is satisfied by the succeeded indexes, None when none is."""
    done = set(succeeded)
    for position, rule in enumerate((policy or {}).get("rules") or ()):
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = None if text is None else lenient_indexes(text, completions)
        reached = done if wanted is None else done & wanted
        if count is not None:
            if len(reached) >= count:
                return position
        elif wanted is not None and reached == wanted:
            return position
    return None
