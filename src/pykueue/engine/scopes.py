"""Which policy applies to a ClusterQueue: by its name, by its nearest cohort, or to all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from pykueue.api.validation.scopes import Scope

Rules = TypeVar("Rules")


class _Policy(Protocol):
    @property
    def spec(self) -> Scope: ...


P = TypeVar("P", bound=_Policy)


class Scopes(Generic[Rules]):
    """The rules of the policies of one kind, by what they apply to; never changed once made."""

    __slots__ = ("_by_cohort", "_by_queue", "_for_all")

    def __init__(self) -> None:
        self._by_queue: dict[str, Rules] = {}
        self._by_cohort: dict[str, Rules] = {}
        self._for_all: Rules | None = None

    @classmethod
    def of(cls, policies: Mapping[str, P], compiled: Callable[[P], Rules]) -> Scopes[Rules]:
        """The scopes of policies by name.

        Of two for the same queues, which admission refuses, the first by name is in force.
        """
        scopes = cls()
        for _, policy in sorted(policies.items()):
            spec, rules = policy.spec, compiled(policy)
            for queue in spec.cluster_queues:
                scopes._by_queue.setdefault(queue, rules)
            if spec.cohort:
                scopes._by_cohort.setdefault(spec.cohort, rules)
            elif not spec.cluster_queues and scopes._for_all is None:
                scopes._for_all = rules
        return scopes

    def rules_of(self, path: tuple[str, ...]) -> Rules | None:
        """The rules for a ClusterQueue, given its path from the root cohort; None: no policy applies."""
        found = self._by_queue.get(path[-1]) if path else None
        if found is None and self._by_cohort:
            for cohort in reversed(path[:-1]):
                found = self._by_cohort.get(cohort)
                if found is not None:
                    return found
        return found if found is not None else self._for_all
