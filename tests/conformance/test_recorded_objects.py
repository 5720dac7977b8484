"""The objects of the recorded scenarios in both versions of the API."""

from __future__ import annotations

from typing import Any

import pytest
import recordings

from pykueue.api import KINDS, decode, kind_of, kueue
from pykueue.api.conversion import convert
from pykueue.api.kueue import V1BETA1, V1BETA2, TopologyAssignment
from pykueue.api.model import Model
from pykueue.api.topologies import expand

_ONLY_V1BETA2 = ("preemptionGates", "podsetSliceRequiredTopologyConstraints", "concurrentAdmissionPolicy")


def spelled_out(value: Any) -> Any:
    """The manifest of a typed object, whatever form its topology assignments were written in."""
    if isinstance(value, TopologyAssignment):
        return [value.levels, expand(value)]
    if isinstance(value, Model):
        return {field: spelled_out(getattr(value, field)) for field in value.__struct_fields__}
    return [spelled_out(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", recordings.files())
def test_every_recorded_object_is_the_same_in_both_versions(file: str) -> None:
    for scenario in recordings.load(file):
        beyond_v1beta1 = any(field in str(scenario["objects"]) for field in _ONLY_V1BETA2)
        for source in scenario["objects"]:
            if (source["apiVersion"], source["kind"]) not in KINDS:
                continue
            typed = decode(source)
            assert kind_of(typed) == source["kind"]
            if isinstance(typed, kueue.Workload):
                for pod_set in typed.spec.pod_sets:
                    assert pod_set.pod_template.spec.containers
            if source["apiVersion"] == V1BETA2 and not beyond_v1beta1:
                assert spelled_out(decode(convert(source, V1BETA1))) == spelled_out(typed)
