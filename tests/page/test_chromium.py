"""Where there is no Chromium its tests are left out, with a reason; in CI that is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.page.chromium import executable


def test_without_a_chromium_it_skips_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    for name in ("CI", "CHROMIUM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt install chromium"):
        executable()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt install chromium"):
        executable()
    (tmp_path / "chromium").write_text("#!/bin/sh\n")
    (tmp_path / "chromium").chmod(0o755)
    assert executable() == str(tmp_path / "chromium")
