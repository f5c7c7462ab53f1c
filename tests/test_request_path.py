"""The way of a request through our files stays short enough to follow."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.process

MAX_FILES = {"slate": 27, "feedback": 19}
"""The goal is 20 for both. A slate of a service with a key also checks the key (keys.py), draws rates (randomness.py),
learns from what was seen (evidence.py, learning.py), says why each item is there (reasons.py, asking the policy by
protocol.py), and its variety is measured by the laboratory's own function (similarity.py)."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    directory = tmp_path_factory.mktemp("path")
    command = [sys.executable, "-m", "tests.support.request_path", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("request_kind", "known"),
    [
        (
            "slate",
            {"service/slates.py", "recommender/recommend.py", "policies/calibrated.py", "store/sqlite_writer.py"},
        ),
        ("feedback", {"service/slates.py", "recommender/feedback.py", "store/sql.py", "store/rows.py"}),
    ],
)
def test_a_request_takes_part_in_few_files(files: dict[str, list[str]], request_kind: str, known: set[str]) -> None:
    """The known files show that the profile sees every thread: the loop's, the workers' and the writer's."""
    assert known <= set(files[request_kind])
    assert len(files[request_kind]) <= MAX_FILES[request_kind], files[request_kind]


def test_feedback_needs_no_policy(files: dict[str, list[str]]) -> None:
    """An event extends the log; nothing is learned before the next slate."""
    assert not [name for name in files["feedback"] if name.startswith(("policies", "belief", "slates"))]
