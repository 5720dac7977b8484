"""What the process of a manager loads, which stays in its memory."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pykueue.manager.certificates import local

#: Each takes megabytes and is needed by some configurations only.
SELDOM = ("aiohttp", "cryptography", "importlib.metadata", "jsonschema_rs", "tracemalloc", "pykueue.embedded")


def test_a_manager_does_not_load_what_only_some_configurations_need() -> None:
    program = f"""
import sys
import pykueue.cli.manager
print(*[name for name in {SELDOM!r} if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_certificate_of_a_manager_on_its_own_machine_is_made_in_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "cryptography", raising=False)
    made = asyncio.run(local.made_apart(datetime.now(UTC)))
    assert "cryptography" not in sys.modules
    pair = tmp_path / "pair.pem"
    pair.write_bytes(made.certificate + made.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair)
    assert ssl.create_default_context(cadata=made.authority.decode()).get_ca_certs()


def test_process_that_makes_no_certificate_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cryptography", raising=False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConnectionError, match="ended with 1"):
        asyncio.run(local.made_apart(datetime.now(UTC)))
