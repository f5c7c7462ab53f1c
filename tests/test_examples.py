"""The examples run as a reader would run them, and show what they say they show."""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.process

EXAMPLES = ROOT / "examples"


def run(name: str) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_library_in_ten_lines_shows_more_of_what_was_clicked() -> None:
    told = run("library_in_ten_lines")
    counts = [int(count) for count in re.findall(r"slate \d: (\d+) of 10 are biographies", told)]
    assert len(counts) == 4
    assert counts[-1] > counts[0]


def test_ten_lines_are_ten_lines() -> None:
    text = (EXAMPLES / "library_in_ten_lines.py").read_text()
    code = [line for line in text.split('"""')[2].splitlines() if line and "import" not in line]
    assert len(code) <= 10


@pytest.mark.slow
def test_a_policy_of_ones_own_learns_more_than_the_crowd_knows() -> None:
    told = run("custom_policy")
    shares = {name: float(share) for name, share in re.findall(r"^(\S+) +(0\.\d+) of the items", told, re.M)}
    assert list(shares) == ["random", "popular", "favorite-categories"]
    assert shares["favorite-categories"] > shares["popular"] > 2 * shares["random"]
    assert re.search(r"^served: .+, .+, .+$", told, re.M)


def test_thirty_lines_are_thirty_lines() -> None:
    text = (EXAMPLES / "custom_policy.py").read_text()
    policy = text.split("@dataclass")[1].split("POLICIES[")[0]
    assert len([line for line in policy.splitlines() if line.strip()]) <= 30


@pytest.mark.slow
def test_own_csv_files_become_a_service_that_learns() -> None:
    told = run("own_csv_to_service")
    slates = dict(re.findall(r"^(first slate|after clicks on coffee): (.+)$", told, re.M))
    before, after = (re.findall(r"(\w+) \(\d+%\)", line) for line in slates.values())
    assert len(before) == len(after) == 4
    assert not set(before) & set(after)
    coffees = {"Americano", "Cortado", "Espresso", "Lungo", "Mocha", "Ristretto"}
    left = coffees - set(before)
    assert len(left & set(after)) == min(len(left), 4), "the coffees that are left come next"
    assert told.rstrip().endswith("the service stopped with code 0")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_run_here(path: object) -> None:
    assert f'run("{getattr(path, "stem", "")}")' in (ROOT / "tests" / "test_examples.py").read_text()
