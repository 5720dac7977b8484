"""How large objects may grow, and how long compiling what they hold keeps others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from apiserver_harness import CONFIG_MAPS, PODS, config_map
from front_harness import Stage, listening

from pykueue.api.cel import program as rules
from pykueue.api.objects import Object
from pykueue.embedded.apiserver.apply import server_side
from pykueue.embedded.apiserver.crd import parts
from pykueue.embedded.apiserver.handlers import writes
from pykueue.embedded.apiserver.http import connection, encoding, front
from pykueue.embedded.cel import rules as schema_rules
from pykueue.embedded.kinds import crdvalidation
from pykueue.kube.transport import APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def test_an_object_that_is_too_large_is_not_stored(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        body = config_map("large", k="v" * writes.MAX_OBJECT)
        refused = await peer.ask("POST", CONFIG_MAPS, body)
        assert refused.code == 413
        assert refused.message.startswith("etcdserver: request is too large")
        assert (await peer.ask("GET", f"{CONFIG_MAPS}/large")).code == 404

    listening(tmp_path, story)


@pytest.mark.parametrize("form", [MERGE_PATCH, APPLY_PATCH])
def test_an_object_does_not_grow_without_end_by_patches(tmp_path: Path, form: str) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        assert (await peer.ask("POST", CONFIG_MAPS, config_map("grown"))).code == 201
        sizes, codes = [], []
        for number in range(20):
            patch = {**config_map("grown"), "data": {f"k{number}": "v" * 100_000}}
            path = f"{CONFIG_MAPS}/grown?fieldManager=m{number}"
            codes.append((await peer.ask("PATCH", path, patch, f"Content-Type: {form}")).code)
            sizes.append(len((await peer.ask("GET", f"{CONFIG_MAPS}/grown")).body))
        stored = codes.count(200)
        assert 10 < stored < 20
        assert codes == [200] * stored + [413] * (20 - stored)
        assert sizes[-1] == sizes[stored - 1] <= writes.MAX_OBJECT
        small = await peer.ask(
            "PATCH", f"{CONFIG_MAPS}/grown", {"data": {"k0": "small"}}, f"Content-Type: {MERGE_PATCH}"
        )
        assert small.code == 200

    listening(tmp_path, story)


def definition(texts: list[str]) -> Object:
    properties = {
        f"p{number}": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": text}]}
        for number, text in enumerate(texts)
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def webhooks(texts: list[str]) -> Object:
    entry = {
        "name": "a.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [
            {"name": f"c{number}", "expression": text.replace("self", "object.kind")}
            for number, text in enumerate(texts)
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "many"},
        "webhooks": [entry],
    }


@pytest.mark.parametrize(("path", "build"), [(DEFINITIONS, definition), (WEBHOOKS, webhooks)])
@pytest.mark.parametrize("valid", [True, False])
def test_expressions_are_compiled_once_and_a_few_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, build: Any, valid: bool
) -> None:
    compiled: list[str] = []
    in_turn: list[int] = [0]

    class Counted(rules.Program):
        def __init__(self, text: str, *others: Any, **named: Any) -> None:
            compiled.append(text)
            in_turn[-1] += 1
            super().__init__(text, *others, **named)

    monkeypatch.setattr(rules, "Program", Counted)

    async def story(stage: Stage) -> None:
        loop = asyncio.get_running_loop()

        def turn() -> None:
            in_turn.append(0)
            nonlocal handle
            handle = loop.call_soon(turn)

        peer = await stage.peer()
        count = 10 * writes._COMPILED_TOGETHER
        test = "self != 'value-{}'" if valid else "self !! 'value-{}'"
        body = orjson.dumps(build([test.format(number) for number in range(count)]))
        handle = loop.call_soon(turn)
        answer = await peer.ask("POST", path, body)
        handle.cancel()
        assert answer.code == (201 if valid else 422)
        assert len(compiled) == len(set(compiled)) == count
        assert max(in_turn) <= writes._COMPILED_TOGETHER

    listening(tmp_path, story)


class Turns:
    """Counts how often something is done in each turn of the event loop."""

    def __init__(self) -> None:
        self.counts = [0]
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.counts.append(0)
        self._handle = self._loop.call_soon(self._next)

    def counted(self, done: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            self.counts[-1] += 1
            return done(*arguments, **named)

        return count

    def stop(self) -> list[int]:
        """The counts of turns in which anything was done."""
        self._handle.cancel()
        return [one for one in self.counts if one]


def test_rules_of_a_definition_are_checked_a_few_in_each_turn_and_not_again_with_another_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        turns = Turns()
        monkeypatch.setattr(schema_rules, "check_rules", turns.counted(schema_rules.check_rules))
        count = 10 * crdvalidation._RULED_TOGETHER
        body = definition([f"self != 'checked-{number}'" for number in range(count)])
        assert (await peer.ask("POST", DEFINITIONS, body)).code == 201
        path, change = f"{DEFINITIONS}/rules.example.org", {"metadata": {"annotations": {"a": "b"}}}
        assert (await peer.ask("PATCH", path, change, f"Content-Type: {MERGE_PATCH}")).code == 200
        counts = turns.stop()
        assert sum(counts) == count
        assert max(counts) <= crdvalidation._RULED_TOGETHER

    listening(tmp_path, story)


@pytest.mark.parametrize("form", [None, APPLY_PATCH])
def test_first_object_of_a_kind_compiles_its_schema_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str | None
) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        count = 10 * parts._COMPILED_TOGETHER
        kind = f"first-{'create' if form is None else 'apply'}"
        body = definition([f"self != '{kind}-{number}'" for number in range(count)])
        assert (await peer.ask("POST", DEFINITIONS, body)).code == 201
        turns = Turns()
        for name in ("structural_node", "custom_root", "compile_validator", "compile_defaults"):
            monkeypatch.setattr(parts, name, turns.counted(getattr(parts, name)))
        obj = {"apiVersion": "example.org/v1", "kind": "Rule", "metadata": {"name": "a"}, "spec": {"p0": "x"}}
        path = "/apis/example.org/v1/namespaces/default/rules"
        if form is None:
            answer = await peer.ask("POST", path, obj)
        else:
            answer = await peer.ask("PATCH", f"{path}/a?fieldManager=m", obj, f"Content-Type: {form}")
        assert answer.code == 201
        assert turns.stop() == [1, 1, 1, 1]

    listening(tmp_path, story)


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize("count", [0, 7])
@pytest.mark.parametrize("accept", ["application/json", "application/yaml", TABLE, PARTIAL])
@pytest.mark.parametrize("pretty", [True, False])
def test_a_list_encoded_in_steps_reads_as_one_encoded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: str, pretty: bool, count: int
) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        for number in range(count):
            await peer.ask("POST", CONFIG_MAPS, config_map(f"c{number}", k="a: b\n\n- c"))
        path = f"{CONFIG_MAPS}?pretty={str(pretty).lower()}"
        whole = await peer.ask("GET", path, None, f"Accept: {accept}")
        monkeypatch.setattr(encoding, "_STEP", 2)
        monkeypatch.setattr(encoding, "_YAML_STEP", 2)
        for module in (connection, front):
            monkeypatch.setattr(module, "PIECE", 50)
        stepwise = await peer.ask("GET", path, None, f"Accept: {accept}")
        assert stepwise.body == whole.body
        read = yaml.safe_load(whole.body) if accept.endswith("yaml") else orjson.loads(whole.body)
        assert len(read["rows" if accept == TABLE else "items"]) == count
        if pretty and not accept.endswith("yaml"):
            assert whole.body == orjson.dumps(read, option=orjson.OPT_INDENT_2)

    listening(tmp_path, story)


@pytest.mark.interpreted
@pytest.mark.parametrize("form", [None, STRATEGIC_PATCH, APPLY_PATCH])
def test_large_write_is_done_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str | None
) -> None:
    """Patching, the schema and storing each take a separate turn."""

    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        environment = [{"name": f"V{number}", "value": "v" * 20} for number in range(3000)]
        spec = {"containers": [{"name": "c", "image": "i", "env": environment}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": spec}
        if form == STRATEGIC_PATCH:
            assert (await peer.ask("POST", PODS, pod)).code == 201
            pod = {**pod, "metadata": {"name": "large", "labels": {"a": "b"}}}
        turns = Turns()
        for name in ("apply_in_steps", "strategic_patch", "decode", "_check_size"):
            monkeypatch.setattr(writes, name, turns.counted(getattr(writes, name)))
        if form is None:
            answer = await peer.ask("POST", PODS, pod)
        else:
            answer = await peer.ask("PATCH", f"{PODS}/large?fieldManager=m", pod, f"Content-Type: {form}")
        assert answer.code in (200, 201)
        assert turns.stop() == [1] * (2 if form is None else 3)

    listening(tmp_path, story)


@pytest.mark.interpreted
def test_apply_walks_a_large_object_once_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        environment = [{"name": f"V{number}", "value": "v" * 20} for number in range(3000)]
        spec = {"containers": [{"name": "c", "image": "i", "env": environment}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": spec}
        assert (await peer.ask("POST", PODS, pod)).code == 201
        turns = Turns()
        for name in ("applied_fields", "clean", "_first_managers", "merge", "Changes"):
            monkeypatch.setattr(server_side, name, turns.counted(getattr(server_side, name)))
        answer = await peer.ask("PATCH", f"{PODS}/large?fieldManager=m", pod, f"Content-Type: {APPLY_PATCH}")
        assert answer.code == 200
        assert turns.stop() == [1] * 5

    listening(tmp_path, story)
