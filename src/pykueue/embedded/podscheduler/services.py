"""Which Services a pod belongs to, found by its labels without asking every Service."""

from __future__ import annotations

from collections.abc import Mapping

from pykueue.api.selectors import Requirement, Selector
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.terms import Spread, default_spread

Labels = Mapping[str, str]

#: Combinations of Services of which the spread is remembered.
REMEMBERED = 256


class Services:
    """The selectors of the Services, by namespace and name; those without one select no pods."""

    def __init__(self) -> None:
        self._selectors: dict[tuple[str, str], Labels] = {}
        #: Names by namespace and one label that their selectors demand.
        self._by_label: dict[tuple[str, str, str], dict[str, None]] = {}
        #: Default spreads by namespace and what the selectors of the Services demand.
        self._spreads: dict[tuple[object, ...], tuple[Spread, ...]] = {}

    def put(self, namespace: str, name: str, selector: Labels | None) -> None:
        """The Service chooses these pods now; none with None."""
        before = self._selectors.pop((namespace, name), None)
        if before:
            key = (namespace, *_first(before))
            names = self._by_label[key]
            del names[name]
            if not names:
                del self._by_label[key]
        if selector:
            self._selectors[namespace, name] = selector
            self._by_label.setdefault((namespace, *_first(selector)), {})[name] = None

    def labels_of(self, namespace: str, labels: Labels) -> dict[str, str]:
        """What the selectors of all Services that choose such a pod demand together."""
        wanted: dict[str, str] = {}
        for label in labels.items():
            for name in self._by_label.get((namespace, *label), ()):
                selector = self._selectors[namespace, name]
                if all(labels.get(key) == value for key, value in selector.items()):
                    wanted.update(selector)
        return wanted

    def spread(self, pod: PodInfo) -> tuple[Spread, ...]:
        """The default topology spread constraints of a pod: none unless it belongs to a Service."""
        wanted = sorted(self.labels_of(pod.namespace, pod.labels).items())
        if not wanted:
            return ()
        key = (pod.namespace, *wanted)
        found = self._spreads.get(key)
        if found is None:
            if len(self._spreads) >= REMEMBERED:
                self._spreads.clear()
            selector = Selector([Requirement(name, "In", (value,)) for name, value in wanted])
            found = self._spreads[key] = default_spread(selector, pod.namespace)
        return found


def _first(selector: Labels) -> tuple[str, str]:
    return min(selector.items())
