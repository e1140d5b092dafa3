"""Where the real data lie: ../shared beside the project, in CI and on developers' machines."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces."""
    folder = SHARED / "traces"
    if not folder.is_dir():
        pytest.skip("the real traces (../shared/traces) are not on this machine")
    return folder
