"""Conversion of custom objects by a webhook: ConversionReview v1 over HTTPS.

Objects change their form in the middle of decoding, encoding and selecting, where nothing can wait. So the
webhook is called beforehand (`fetch`), requests that need the same conversion share one call, and its result
is kept for `convert`.
Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import aiohttp
import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.webhooks.services import Services, UnreachableError
from pykueue.embedded.objects.metadata import new_uid
from pykueue.kube.errors import ApiError

#: Seconds the webhook has for an answer.
_TIMEOUT = 5.0
#: Converted objects kept.
_KEPT = 20_000
#: Objects in one review, at most.
_BATCH = 500

#: The version asked for, and the object as it is.
_Key = tuple[str, bytes]


class WebhookConversion:
    """Converts the objects of one definition between its versions."""

    def __init__(
        self,
        crd: Object,
        services: Services,
        rng: random.Random,
        spawn: Callable[[Coroutine[Any, Any, ApiError | None]], asyncio.Task[ApiError | None]],
    ) -> None:
        spec = crd["spec"]
        self._name = f"{spec['group']}, Kind={spec['names']['kind']}"
        self._client: Object = (spec["conversion"].get("webhook") or {}).get("clientConfig") or {}
        self._services = services
        self._rng = rng
        self._spawn = spawn
        self._kept: OrderedDict[_Key, Object] = OrderedDict()
        #: Conversions being asked for. The tasks result in what went wrong.
        self._asking: dict[_Key, asyncio.Task[ApiError | None]] = {}

    def convert(self, obj: Object, version: str) -> Object:
        """The object in an API version. 503 when it was not fetched lately: the client may try again."""
        if obj.get("apiVersion") == version:
            return obj
        found = self._kept.get((version, orjson.dumps(obj)))
        if found is None:
            message = f"conversion webhook for {self._name}: the conversion is not at hand yet"
            raise ApiError(503, "ServiceUnavailable", message, None, 1)
        return found

    async def fetch(self, objects: Iterable[Object], version: str) -> None:
        """Have the conversions of objects at hand. Raises ApiError (500) when the webhook fails."""
        missing: dict[_Key, Object] = {}
        under_way: set[asyncio.Task[ApiError | None]] = set()
        known = 0
        for obj in objects:
            if obj.get("apiVersion") == version:
                continue
            key = (version, orjson.dumps(obj))
            if key in self._kept:
                self._kept.move_to_end(key)
                known += 1
            elif key in self._asking:
                under_way.add(self._asking[key])
            else:
                missing[key] = obj
        wanted = list(missing.items())
        for start in range(0, len(wanted), _BATCH):
            part = dict(wanted[start : start + _BATCH])
            task = self._spawn(self._ask(part, version, known + len(wanted)))
            under_way.add(task)
            self._asking.update(dict.fromkeys(part, task))
        if under_way:
            # Who gives up waiting does not take the answer away from others.
            await asyncio.wait(under_way)
            for task in under_way:
                fault = task.result()
                if fault is not None:
                    raise fault

    async def _ask(self, wanted: dict[_Key, Object], version: str, together: int) -> ApiError | None:
        """Keep the webhook's answer, and at least so many `together`; the result is what went wrong."""
        try:
            answers = await self._review(list(wanted.values()), version)
        except ApiError as error:
            return error
        finally:
            for key in wanted:
                del self._asking[key]
        self._kept.update(zip(wanted, answers, strict=True))
        while len(self._kept) > max(_KEPT, together):
            self._kept.popitem(last=False)
        return None

    async def _review(self, objects: list[Object], version: str) -> list[Object]:
        uid = new_uid(self._rng)
        review = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": version, "objects": objects},
        }
        try:
            answer = await self._services.review(self._client, review, _TIMEOUT)
        except TimeoutError as error:
            raise self._failed(f"no answer in {_TIMEOUT:g} seconds") from error
        except (aiohttp.ClientError, OSError, ValueError, UnreachableError) as error:
            raise self._failed(str(error)) from error
        response = answer.get("response") or {}
        result = response.get("result") or {}
        converted = response.get("convertedObjects") or []
        if response.get("uid") != uid:
            raise self._failed("the answer carries another uid than the request")
        if result.get("status") != "Success":
            raise self._failed(str(result.get("message") or "no success, and no word why"))
        if len(converted) != len(objects):
            raise self._failed(f"{len(converted)} objects came back of {len(objects)}")
        return [self._accepted(obj, new, version) for obj, new in zip(objects, converted, strict=True)]

    def _accepted(self, obj: Object, new: Any, version: str) -> Object:
        """The converted object with everything in its metadata as it was, but for labels and annotations."""
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise self._failed("a converted object is none")
        if new.get("apiVersion") != version or new.get("kind") != obj.get("kind"):
            raise self._failed(f"asked for {version}, got {new.get('apiVersion')} {new.get('kind')}")
        old, meta = obj["metadata"], dict(obj["metadata"])
        for field in ("name", "namespace", "uid"):
            if new["metadata"].get(field) != old.get(field):
                raise self._failed(f"metadata.{field} must not change")
        for field in ("labels", "annotations"):
            meta.pop(field, None)
            if new["metadata"].get(field):
                meta[field] = new["metadata"][field]
        return {**new, "metadata": meta}

    def _failed(self, text: str) -> ApiError:
        return ApiError(500, "InternalError", f"conversion webhook for {self._name} failed: {text}")
