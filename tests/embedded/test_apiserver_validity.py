"""Certificates whose validity the wall clock leaves."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from pykueue.clock import JUMP_CHECK, VIRTUAL_EPOCH, Clock, JumpingClock, run_virtual
from pykueue.embedded.apiserver.auth.certificates import Authority
from pykueue.kube.validity import ValidityWatch

DAY = 86400.0


def test_jump_back_before_the_certificates_is_logged_once_and_their_return_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(_: Clock) -> None:
        clock = JumpingClock(VIRTUAL_EPOCH.timestamp())
        watch = ValidityWatch(clock, "directory pki", *Authority(tmp_path, VIRTUAL_EPOCH).validity)
        watch.start()
        clock.offset -= 1800
        await clock.sleep(2 * JUMP_CHECK)
        assert not caplog.messages
        clock.offset -= DAY
        await clock.sleep(DAY / 4)
        (text,) = caplog.messages
        assert "directory pki: certificates are not valid before 2025-12-31T23:00:00Z" in text
        assert "shows 2025-12-30T23:30:" in text
        clock.offset += 2 * DAY
        await clock.sleep(2 * JUMP_CHECK)
        assert caplog.messages[1:] == ["directory pki: certificates are valid again"]
        clock.offset += 20 * 365 * DAY
        await clock.sleep(2 * JUMP_CHECK)
        assert "certificates expired at" in caplog.messages[2]
        watch.close()

    caplog.set_level(logging.INFO, logger="pykueue.kube.validity")
    run_virtual(main)


def test_issued_certificate_is_valid_from_an_hour_before_it_was_issued(tmp_path: Path) -> None:
    authority = Authority(tmp_path, VIRTUAL_EPOCH)
    assert authority.validity[0] == VIRTUAL_EPOCH - timedelta(hours=1)
    later = Authority(tmp_path, VIRTUAL_EPOCH + timedelta(days=1))
    later.client("user", ())
    assert later.validity[0] == VIRTUAL_EPOCH + timedelta(hours=23)
