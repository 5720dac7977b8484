"""Pods with an address of their own, and Services found by their names, for real."""

import pytest
from processes_stage import needs, play, shell, state

from pykueue.api.resources import SERVICES


@pytest.fixture(autouse=True, scope="module")
def network():
    needs("network")


def service(name, *, headless=False, selector=None, target=8080, early=False):
    spec = {"selector": selector or {"app": name}, "ports": [{"port": 80, "targetPort": target}]}
    if headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": early}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }, SERVICES


def server(name, app, **more):
    """A pod that answers every request with its name on port 8080, as many others do beside it."""
    script = (
        "from http.server import *\n"
        "import os\n"
        "class H(BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        "        self.wfile.write(os.environ['HOSTNAME'].encode())\n"
        "HTTPServer(('', 8080), H).serve_forever()\n"
    )
    probe = {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1}
    return shell(
        name,
        f'exec python3 -c "{script}"',
        labels={"app": app},
        c_ports=[{"name": "web", "containerPort": 8080}],
        c_readinessProbe=probe,
        hostname=name,
        subdomain=app,
        **more,
    )


def fetch(url):
    return f"python3 -c \"import urllib.request as u; print(u.urlopen('{url}', timeout=20).read().decode())\""


def test_pods_on_the_same_port_find_each_other_by_name():
    async def story(stage):
        await stage.create(service("web", headless=True), server("one", "web"), server("two", "web"))
        first, second = await stage.ready("one"), await stage.ready("two")
        assert first["status"]["podIP"] != second["status"]["podIP"]
        names = ["one.web:8080", "two.web.default:8080", "two.web.default.svc.cluster.local:8080"]
        await stage.create(shell("asks", "; ".join(fetch(f"http://{name}/") for name in names)))
        await stage.ended("asks")
        assert await stage.log("asks") == "one\ntwo\ntwo\n"

    play(story)


def test_the_address_of_a_service_leads_to_its_pods():
    async def story(stage):
        await stage.create(service("web", target="web"), server("one", "web"), server("two", "web"))
        await stage.ready("one")
        await stage.ready("two")
        await stage.create(shell("asks", "; ".join([fetch("http://web/")] * 2)))
        await stage.ended("asks")
        assert sorted((await stage.log("asks")).split()) == ["one", "two"]

    play(story)


def test_names_come_with_readiness_unless_they_are_published_before():
    async def story(stage):
        never = {"exec": {"command": ["false"]}}
        await stage.create(
            service("late", headless=True, selector={"app": "x"}),
            service("early", headless=True, selector={"app": "x"}, early=True),
            shell("unready", "sleep 100", labels={"app": "x"}, c_readinessProbe=never),
        )
        found = await stage.until(
            "unready", lambda found: found and state(found) and state(found)[0] == "running"
        )
        await stage.create(shell("asks", "getent hosts early; getent hosts late; getent hosts nothing"))
        await stage.ended("asks")
        assert (await stage.log("asks")).split() == [
            found["status"]["podIP"],
            "early.default.svc.cluster.local",
        ]

    play(story)


def test_a_pod_knows_its_own_name_and_the_aliases_it_was_given():
    async def story(stage):
        aliases = [{"ip": "192.0.2.7", "hostnames": ["old.example"]}]
        await stage.create(
            shell(
                "named",
                "hostname; getent hosts $HOSTNAME old.example | tr -s ' '; cat /etc/resolv.conf",
                hostname="me",
                subdomain="us",
                hostAliases=aliases,
            )
        )
        found = await stage.ended("named")
        assert (await stage.log("named")).splitlines() == [
            "me",
            f"{found['status']['podIP']} me.us.default.svc.cluster.local me",
            "192.0.2.7 old.example",
            "search default.svc.cluster.local svc.cluster.local cluster.local",
            "nameserver 10.128.0.1",
            "options ndots:5",
        ]

    play(story)


def test_nothing_leaves_the_machine():
    async def story(stage):
        script = (
            "import socket; s = socket.socket(); s.settimeout(20)\n"
            "try: s.connect(('192.0.2.1', 80))\n"
            "except OSError as error: print(error.strerror)\n"
        )
        await stage.create(shell("tries", f'python3 -c "{script}"'))
        await stage.ended("tries")
        assert await stage.log("tries") == "Network is unreachable\n"

    play(story)


def test_pods_with_host_network_share_the_network_of_the_node():
    async def story(stage):
        await stage.create(
            shell("one", "python3 -m http.server 8099", hostNetwork=True),
            shell(
                "two",
                f"until {fetch('http://127.0.0.1:8099/')} | grep -q Directory; do :; done",
                hostNetwork=True,
            ),
        )
        assert (await stage.ended("two"))["status"]["phase"] == "Succeeded"
        found = await stage.pod("one")
        assert found["status"]["podIP"] == found["status"]["hostIP"]

    play(story)
