"""The command line as a person uses it: its two streams and its exit code, and where those matter a real process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_line import run_here
from tests.support.serving import small_catalog

INTERACTIONS = """user_id,item_id,rating
anna,tt1,5
anna,tt2,4
börje,tt1,5
börje,tt3,1
cléo,tt2,5
cléo,tt3,4
"""
ITEMS = """item_id,title,categories
tt1,Ärger im Büro,Comedy|Drama
tt2,日本の夏,
tt3,[bold]not markup[/bold],Drama
tt9,Nobody's favourite,Horror
"""


def slatewise(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slatewise", *map(str, arguments)]
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}, timeout=300
    )


@pytest.fixture
def own_data(tmp_path: Path) -> list[str | Path]:
    (tmp_path / "likes.csv").write_text(INTERACTIONS, encoding="utf-8")
    (tmp_path / "items.csv").write_text(ITEMS, encoding="utf-8")
    return ["--interactions", tmp_path / "likes.csv", "--items", tmp_path / "items.csv", "--positive", "> 3"]


@pytest.mark.process
def test_own_tables_become_a_catalog(own_data: list[str | Path], tmp_path: Path) -> None:
    done = slatewise("train", *own_data, "--epochs", "3", "--dim", "2", "--out", tmp_path / "shop")
    assert done.returncode == 0, done.stderr
    assert "4 items in 3 categories, 2 dimensions" in done.stdout
    assert "[bold]not markup[/bold]" in done.stdout
    assert "1 item that nobody liked kept" in done.stderr
    shown = run_here("catalog", "show", tmp_path / "shop", "--json", "--find", "büro")
    [item] = json.loads(shown.stdout)["shown"]
    assert item == {"id": "tt1", "title": "Ärger im Büro", "categories": ["Comedy", "Drama"], "liked_by": 0.625}


@pytest.mark.process
@pytest.mark.slow
def test_same_seed_same_hash(own_data: list[str | Path], tmp_path: Path) -> None:
    def train(seed: str, out: str) -> str:
        done = slatewise("train", *own_data, "--epochs", "2", "--seed", seed, "--out", tmp_path / out, "--json")
        return str(json.loads(done.stdout)["sha256"])

    assert train("1", "a") == train("1", "b") != train("2", "c")


def test_train_share_trains_on_fewer_people(own_data: list[str | Path], tmp_path: Path) -> None:
    done = run_here("train", *own_data, "--epochs", "1", "--train-share", "0.6", "--out", tmp_path / "x", "--json")
    assert json.loads(done.stdout)["data"]["users"] == 2


@pytest.mark.parametrize("name", ["ml-100k", "ml-1m", "anime-5k"])
def test_describe_prints_table_1(name: str, real_data: Path) -> None:
    expected = {
        "ml-100k": [942, 1_447, 55_375, 18, 0.0406],
        "ml-1m": [6_038, 3_533, 575_281, 18, 0.0270],
        "anime-5k": [4_704, 6_482, 345_717, 43, 0.0113],
    }
    done = run_here("data", "describe", name, "--json", SLATEWISE_DATA=str(real_data))
    keys = ["name", "users", "items", "interactions", "categories", "density"]
    assert json.loads(done.stdout) == dict(zip(keys, [name, *expected[name]], strict=True))


MISTAKES: dict[str, tuple[list[str], str]] = {
    "unknown data set": (["data", "describe", "netflix"], "there is no data set 'netflix'; choose one of ml-100k"),
    "no such file": (["train", "--interactions", "gone.csv", "--out", "x"], "gone.csv cannot be read: No such file"),
    "no data at all": (["train", "--out", "x"], "use either --data NAME or --interactions FILE"),
    "two kinds of data": (
        ["train", "--data", "ml-100k", "--interactions", "a.csv", "--out", "x"],
        "use either --data NAME or --interactions FILE",
    ),
    "not a catalog": (["catalog", "show", "."], "contains no catalog"),
    "share above one": (
        ["train", "--interactions", "{likes}", "--train-share", "2", "--out", "x"],
        "2.0 is not between 0 and 1",
    ),
    "unwritable": (["train", "--interactions", "{likes}", "--epochs", "1", "--out", "/proc/catalog"], "error: "),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_get_one_clear_sentence(arguments: list[str], message: str, own_data: list[str | Path]) -> None:
    done = run_here(*(argument.format(likes=own_data[1]) for argument in arguments))
    assert_one_clear_sentence(done, message)


HOT = "temperature is 'hot'; give 0 or a positive number"


@pytest.mark.parametrize("command", ["serve", "evaluate", "run"])
def test_an_option_of_the_wrong_type_gets_one_clear_sentence(command: str, tmp_path: Path) -> None:
    settings, experiment = tmp_path / "settings.toml", tmp_path / "experiment.toml"
    settings.write_text('[policies.calm]\npolicy = "dc2b"\noptions = { temperature = "hot" }\n')
    arm = '[[arms]]\npolicy = "dc2b"\nrounds = 2\noptions = { temperature = "hot" }\n'
    experiment.write_text(f'title = "Hot"\nsplits = 1\nembedding = {{ dim = 2, epochs = 1 }}\n{arm}')
    small_catalog().save(tmp_path / "shop")
    store: tuple[str | Path, ...] = ("--catalog", tmp_path / "shop", "--store", "memory://")
    arguments: dict[str, tuple[str | Path, ...]] = {
        "serve": (*store, "--config", settings, "--port", "0"),
        "evaluate": (*store, "--policy", "dc2b", "--option", "temperature=hot"),
        "run": (experiment, "--data", "synthetic", "--out", tmp_path / "out", "--workers", "1"),
    }
    done = run_here(command, *arguments[command], OPENBLAS_NUM_THREADS="1")  # else serve would replace this process
    assert_one_clear_sentence(done, HOT)


@pytest.mark.process
def test_a_mistake_is_said_in_the_same_words_by_a_process() -> None:
    arguments, message = MISTAKES["unknown data set"]
    done = slatewise(*arguments)
    assert_one_clear_sentence(done, message)
    here = run_here(*arguments)
    assert (here.returncode, here.stdout, here.stderr) == (done.returncode, done.stdout, done.stderr)


def assert_one_clear_sentence(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not done.stdout


def interrupted(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C while a process works, and again if a library swallowed it; return what it says then."""
    time.sleep(2.5)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()[1]


@pytest.mark.process
def test_control_c_says_so(tmp_path: Path) -> None:
    rows = "".join(f"{user},{item}\n" for user in range(300) for item in range(300) if (user + item) % 3)
    (tmp_path / "likes.csv").write_text("user_id,item_id\n" + rows)
    command = [sys.executable, "-m", "slatewise", "train", "--interactions", str(tmp_path / "likes.csv")]
    process = subprocess.Popen(  # noqa: S603
        [*command, "--epochs", "100000", "--out", str(tmp_path / "out")], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert any("training on" in line for line in process.stderr)
    said = interrupted(process)
    assert process.returncode == 130
    assert "interrupted; no partial files were left behind" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.process
def test_help_has_an_example() -> None:
    """That of every verb is looked at in test_docs.py."""
    done = slatewise("train", "--help")
    assert done.returncode == 0
    assert "Example: " in done.stdout


@pytest.mark.process
def test_version() -> None:
    from slatewise import __version__

    assert slatewise("--version").stdout.strip() == f"slatewise {__version__}"


@pytest.mark.process
def test_help_is_quick_to_load() -> None:
    """The heavy libraries are loaded only by the verbs that need them."""
    code = "import sys, slatewise.cli; print([m for m in ('cornac', 'polars', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
