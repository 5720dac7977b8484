"""Conversion of custom objects by a webhook: ConversionReview v1 over HTTPS.

Objects change their form in the middle of encoding an answer or an event, so the webhook is asked there and
then and the server waits for it, a few milliseconds at a time; what it answered is kept. The objects of a
list are converted together beforehand, without holding anyone else up.
Source: reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

import http.client
import random
import socket
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

import orjson

from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.metadata import new_uid
from pykueue.embedded.apiserver.services import Services, UnreachableError
from pykueue.kube.errors import ApiError

#: Seconds the webhook has for an answer.
_TIMEOUT = 5.0
#: Converted objects kept.
_KEPT = 20_000
#: Objects in one review, at most.
_BATCH = 500


class WebhookConversion:
    """Converts the objects of one definition between its versions."""

    def __init__(self, crd: Object, services: Services, rng: random.Random) -> None:
        spec = crd["spec"]
        self._name = f"{spec['group']}, Kind={spec['names']['kind']}"
        self._client: Object = (spec["conversion"].get("webhook") or {}).get("clientConfig") or {}
        self._services = services
        self._rng = rng
        self._kept: OrderedDict[tuple[str, bytes], Object] = OrderedDict()

    def convert(self, obj: Object, version: str) -> Object:
        """The object in an API version. Raises ApiError (500) when the webhook does not deliver it."""
        if obj.get("apiVersion") == version:
            return obj
        key = (version, orjson.dumps(obj))
        found = self._kept.get(key)
        if found is None:
            self._ask([(key, obj)], version)
            found = self._kept[key]
        return found

    def convert_ahead(self, objects: list[Object], version: str) -> None:
        """Have the conversions of many objects ready. May be called in another thread."""
        missing = []
        for obj in objects:
            key = (version, orjson.dumps(obj))
            if obj.get("apiVersion") != version and key not in self._kept:
                missing.append((key, obj))
        for start in range(0, len(missing), _BATCH):
            self._ask(missing[start : start + _BATCH], version)

    def _ask(self, wanted: list[tuple[tuple[str, bytes], Object]], version: str) -> None:
        objects = [obj for _, obj in wanted]
        uid = new_uid(self._rng)
        review = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": version, "objects": objects},
        }
        try:
            response = self._post(review).get("response") or {}
        except (OSError, ValueError, http.client.HTTPException, UnreachableError) as error:
            raise self._failed(str(error)) from error
        result = response.get("result") or {}
        converted = response.get("convertedObjects") or []
        if response.get("uid") != uid:
            raise self._failed("the answer carries another uid than the request")
        if result.get("status") != "Success":
            raise self._failed(str(result.get("message") or "no success, and no word why"))
        if len(converted) != len(objects):
            raise self._failed(f"{len(converted)} objects came back of {len(objects)}")
        for (key, obj), new in zip(wanted, converted, strict=True):
            self._kept[key] = self._accepted(obj, new, version)
        while len(self._kept) > max(_KEPT, len(wanted)):
            self._kept.popitem(last=False)

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

    def _post(self, review: Object) -> Object:
        url, certified = self._services.url(self._client)
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        context = self._services.context(self._client.get("caBundle") or "")
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        try:
            plain = socket.create_connection((host, port), _TIMEOUT)
            connection.sock = context.wrap_socket(plain, server_hostname=certified or host)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request("POST", path or "/", orjson.dumps(review), headers)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"the webhook answered {response.status}: {data[:200].decode(errors='replace')}")
        answer = orjson.loads(data)
        if not isinstance(answer, dict) or answer.get("kind") != "ConversionReview":
            raise ValueError("the answer is not a ConversionReview")
        return answer

    def _failed(self, text: str) -> ApiError:
        return ApiError(500, "InternalError", f"conversion webhook for {self._name} failed: {text}")
