"""How hard to try: a few rounds in the suite, fifty in CI, two hundred in `make durability`; always on a disk."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.load.server import free_port
from slatewise.catalog import Catalog
from tests.support import recommending
from tests.support.postgres import Server, throw_away_server
from tests.support.postgres_kinds import pgbouncer_to
from tests.support.served import Place

FEW_ROUNDS = 4
FEW_UPDATES = 1_000
FIGURES = pytest.StashKey[list[str]]()

Tell = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=FEW_ROUNDS, help="kill -9 this many times")
    parser.addoption("--updates", type=int, default=FEW_UPDATES, help="update one belief this many times")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for words in terminalreporter.config.stash.get(FIGURES, []):
        terminalreporter.write_line(words)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on a disk, where a commit takes its time and can be interrupted."""
    with tempfile.TemporaryDirectory(prefix="slatewise-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="package")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL server on a disk."""
    with throw_away_server() as server:
        yield server


@pytest.fixture(scope="package")
def pgbouncer(postgres_server: Server) -> Iterator[str]:
    """The URL of that server through PgBouncer in transaction mode."""
    with pgbouncer_to(postgres_server) as url:
        yield url


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Tell:
    """Say something at the end of the run."""
    return pytestconfig.stash.setdefault(FIGURES, []).append


@pytest.fixture
def n_rounds(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--rounds", default=FEW_ROUNDS))


@pytest.fixture
def n_updates(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--updates", default=FEW_UPDATES))


def make_catalog(seed: int = 0, first: int = 100, n_items: int = 300) -> Catalog:
    """Items with two categories each; another seed is another training, another first item another selection."""
    return recommending.make_catalog(n_items, seed, first)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return make_catalog()


@pytest.fixture
def place(tmp_path: Path, catalog: Catalog) -> Place:
    """A directory with a catalog, and a port."""
    catalog.save(tmp_path / "catalog")
    return Place(tmp_path, free_port())
