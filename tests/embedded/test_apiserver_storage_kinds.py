"""The kinds of storage.k8s.io: what kube-apiserver 1.36 fills in, refuses and prints (tried there)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from apiserver_harness import Api, with_server

Object = dict[str, Any]

BASE = "/apis/storage.k8s.io/v1"
DRIVERS, NODES = f"{BASE}/csidrivers", f"{BASE}/csinodes"
ATTACHMENTS = f"{BASE}/volumeattachments"
CAPACITIES = f"{BASE}/namespaces/default/csistoragecapacities"
CLASSES = f"{BASE}/volumeattributesclasses"
OBJECTS: dict[str, Object] = {
    DRIVERS: {"metadata": {"name": "d.example.com"}, "spec": {}},
    NODES: {
        "metadata": {"name": "n"},
        "spec": {
            "drivers": [
                {"name": "d", "nodeID": "x"},
                {"name": "e", "nodeID": "x", "allocatable": {"count": 3}},
            ]
        },
    },
    ATTACHMENTS: {
        "metadata": {"name": "va"},
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": True},
    },
    CAPACITIES: {
        "metadata": {"name": "cap"},
        "storageClassName": "sc",
        "capacity": "1024Mi",
        "nodeTopology": {"matchLabels": {"a": "b"}},
    },
    CLASSES: {"metadata": {"name": "fast"}, "driverName": "d", "parameters": {"iops": "5"}},
}
FILLED: list[tuple[str, str, Any]] = [
    (
        DRIVERS,
        "spec",
        {
            "attachRequired": True,
            "podInfoOnMount": False,
            "volumeLifecycleModes": ["Persistent"],
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "requiresRepublish": False,
            "seLinuxMount": False,
        },
    ),
    (ATTACHMENTS, "status", {"attached": False}),
    (CAPACITIES, "capacity", "1Gi"),
]
REFUSED: list[tuple[str, Object, str]] = [
    (
        DRIVERS,
        {
            "spec": {
                "fsGroupPolicy": "Foo",
                "volumeLifecycleModes": ["Bar"],
                "tokenRequests": [{"audience": "a"}] * 2,
            }
        },
        '[spec.fsGroupPolicy: Unsupported value: "Foo": supported values: '
        '"File", "None", "ReadWriteOnceWithFSType", '
        'spec.tokenRequests[1].audience: Duplicate value: "a", '
        'spec.volumeLifecycleModes: Unsupported value: "Bar": supported values: "Persistent", "Ephemeral"]',
    ),
    (
        NODES,
        {"spec": {"drivers": [{"name": "x", "nodeID": ""}]}},
        "spec.drivers[0].nodeID: Required value",
    ),
    (
        NODES,
        {
            "spec": {
                "drivers": [
                    {"name": "x", "nodeID": "y"},
                    {"name": "x", "nodeID": "y", "topologyKeys": ["a", "a"], "allocatable": {"count": -1}},
                ]
            }
        },
        "[spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0, "
        'spec.drivers[1].name: Duplicate value: "x", spec.drivers[1]: Duplicate value: "a"]',
    ),
    (
        ATTACHMENTS,
        {"spec": {"attacher": "", "nodeName": "n", "source": {}}},
        "[spec.attacher: Required value, "
        "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName]",
    ),
    (
        CAPACITIES,
        {"storageClassName": "s", "capacity": "-1"},
        'capacity: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (CLASSES, {"driverName": "d"}, "parameters: Required value: must contain at least one key/value pair"),
]
CHANGES: list[tuple[str, Object, str]] = [
    (
        DRIVERS,
        {"spec": {"attachRequired": False}},
        "spec.attachRequired: Invalid value: false: field is immutable",
    ),
    (DRIVERS, {"spec": {"podInfoOnMount": True}}, ""),
    (NODES, {"spec": {"drivers": [{"name": "d", "nodeID": "x"}]}}, ""),
    (NODES, {"spec": {"drivers": [{"name": "e", "nodeID": "x", "allocatable": {"count": 4}}]}}, ""),
    (
        NODES,
        {"spec": {"drivers": [{"name": "d", "nodeID": "z"}]}},
        'spec.drivers: Invalid value: {"name":"d","nodeID":"z"}: field is immutable',
    ),
    (
        ATTACHMENTS,
        {"spec": {"nodeName": "k"}},
        'spec: Invalid value: {"attacher":"d","nodeName":"k","source":{"persistentVolumeName":"pv"}}: '
        "field is immutable",
    ),
    (CAPACITIES, {"storageClassName": "z"}, 'storageClassName: Invalid value: "z": field is immutable'),
    (CAPACITIES, {"capacity": "2Gi"}, ""),
    (CLASSES, {"driverName": "e"}, 'driverName: Invalid value: "e": field is immutable'),
]


@pytest.mark.parametrize(("path", "field", "expected"), FILLED)
def test_what_is_left_out_is_filled_in(path: str, field: str, expected: Any) -> None:
    async def tell(api: Api) -> None:
        assert (await api.create(path, copy.deepcopy(OBJECTS[path])))[field] == expected

    with_server(tell)


@pytest.mark.parametrize(("path", "body", "message"), REFUSED)
def test_wrong_fields_are_refused_with_all_causes(path: str, body: Object, message: str) -> None:
    async def tell(api: Api) -> None:
        error = await api.refused(api.create(path, {"metadata": {"name": "bad"}, **body}))
        assert error.code == 422
        assert error.message.endswith(f'"bad" is invalid: {message}')

    with_server(tell)


@pytest.mark.parametrize(("path", "patch", "message"), CHANGES)
def test_what_is_immutable_stays(path: str, patch: Object, message: str) -> None:
    async def tell(api: Api) -> None:
        made = await api.create(path, copy.deepcopy(OBJECTS[path]))
        at = f"{path}/{made['metadata']['name']}"
        if not message:
            await api.patch(at, patch)
            return
        error = await api.refused(api.patch(at, patch))
        assert error.code == 422
        assert error.message.endswith(message)

    with_server(tell)


def test_an_attachment_is_reported_in_the_status() -> None:
    async def tell(api: Api) -> None:
        await api.create(ATTACHMENTS, copy.deepcopy(OBJECTS[ATTACHMENTS]))
        patched = await api.patch(f"{ATTACHMENTS}/va/status", {"status": {"attached": True}})
        assert patched["status"] == {"attached": True}

    with_server(tell)
