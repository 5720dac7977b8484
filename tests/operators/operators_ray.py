"""The dashboard of simulated Ray clusters: KubeRay asks it for the state of jobs and applications.

Simulated pods serve nothing, and their names do not resolve. So the operator's HTTP requests go through
this server as their proxy, which answers them itself.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

#: Jobs succeed in namespaces with this suffix; in all others they run until they are stopped.
ENDING = "-ends"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        namespace = (url.hostname or "").split(".")[1:2]
        if url.path.startswith("/api/jobs/"):
            ends = bool(namespace) and namespace[0].endswith(ENDING)
            self._answer(
                {"status": "SUCCEEDED" if ends else "RUNNING", "start_time": 1_000, "end_time": 2_000}
            )
        elif url.path.startswith("/api/serve/applications"):
            application = {"name": "translate", "status": "RUNNING", "deployments": {}}
            self._answer({"applications": {"translate": application}})
        else:
            self._answer({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer({})

    do_POST = do_PUT
    do_DELETE = do_PUT

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def serving_endpoint(service: str, namespace: str) -> dict[str, Any]:
    """What makes a RayService ready: an endpoint of its Service, which no controller writes here."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-serve-svc",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": f"{service}-serve-svc"},
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.0.0.1"],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": "proxy", "uid": "1"},
            }
        ],
    }


@contextlib.contextmanager
def dashboard() -> Iterator[Mapping[str, str]]:
    """Serve; the environment variables with which the operator's requests arrive here."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield {"HTTP_PROXY": f"http://127.0.0.1:{server.server_address[1]}"}
        finally:
            server.shutdown()
            thread.join()
