"""Every Ray that is started here has a secret of its own, and none is written to the user's home."""

import secrets

import pytest

TOKEN = secrets.token_hex(32)  # a process reads it once, so it is the same for all of its tests


@pytest.fixture(autouse=True)
def own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
