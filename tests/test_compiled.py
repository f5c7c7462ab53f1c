import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from slatewise import compiled
from slatewise.belief import linear_algebra

pytestmark = pytest.mark.process

SOURCE = Path(compiled.__file__).parents[1]

CALLER = """
from slatewise.compiled import compiled
from called import scaled


@compiled
def plus_one(value):
    return value + 1.0

@compiled
def total(values):
    result = 0.0
    for number in range(len(values)):
        result += plus_one(scaled(values[number]))
    return result
"""

CALLED = """
from slatewise.compiled import compiled

@compiled
def scaled(value):
    return 2.0 * value
"""

RUN = """
import sys
import numpy
import caller
assert "numba" not in sys.modules
print(caller.total(numpy.arange(4.0)), sum(caller.total.stats.cache_hits.values()))
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Two files with kernels, of which one calls the other."""
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED)
    return tmp_path


def run(modules: Path, code: str = RUN, **environment: str) -> tuple[list[str], str]:
    """Run code in a fresh process; return the words it printed and what it said on stderr."""
    paths = os.pathsep.join([str(SOURCE), str(modules)])
    settings = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": "", **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=settings)  # noqa: S603
    return done.stdout.split(), done.stderr


@pytest.mark.slow
def test_what_was_compiled_is_read_from_the_cache_until_a_file_changes(modules: Path) -> None:
    """numba watches the file of a kernel itself; that of a kernel it calls is watched by us."""
    assert run(modules)[0] == ["16.0", "0"]
    assert run(modules)[0] == ["16.0", "1"]
    (modules / "called.py").write_text(CALLED.replace("2.0", "3.0"))
    assert run(modules)[0] == ["22.0", "0"]
    (modules / "caller.py").write_text(CALLER.replace("1.0", "10.0"))
    assert run(modules)[0] == ["58.0", "0"]


@pytest.mark.slow
def test_without_a_directory_for_the_cache_a_kernel_is_compiled_in_every_process(modules: Path) -> None:
    """A file where directories would be made stands for a read-only installation; root may write anywhere else."""
    (modules / "__pycache__").touch()
    nowhere = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull}
    for _ in range(2):
        assert run(modules, **nowhere)[0] == ["16.0", "0"]


@pytest.mark.slow
def test_a_full_disk_does_not_stop_a_kernel(modules: Path) -> None:
    """No file may grow: directories can be made, but nothing be written to the cache."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    assert run(modules, full + RUN)[0] == ["16.0", "0"]
    assert run(modules)[0] == ["16.0", "0"]  # nothing was kept
    assert run(modules)[0] == ["16.0", "1"]


@pytest.mark.slow
def test_compiling_is_announced_once_if_it_takes_long(modules: Path) -> None:
    """Negative controls: to read from the cache, or to compile within the time allowed, is silent."""
    impatient = "import slatewise.compiled as c; c.PATIENCE = 0.0\n" + RUN + "caller.plus_one(1.0)"
    words, said = run(modules, impatient)
    assert words == ["16.0", "0"]
    assert said == compiled.NOTICE + "\n"
    assert run(modules, impatient) == (["16.0", "1"], "")
    (modules / "called.py").write_text(CALLED.replace("2.0", "3.0"))
    words, said = run(modules, impatient.replace("0.0\n", "600.0\n"))
    assert words == ["22.0", "0"]
    assert said == ""


@pytest.mark.parametrize("module", ["slatewise", "slatewise.belief", "slatewise.policies", "slatewise.randomness"])
def test_importing_does_not_import_numba(module: str, tmp_path: Path) -> None:
    words, _ = run(tmp_path, f"import sys, {module}; print('numba' in sys.modules)")
    assert words == ["False"]


def test_kernels_do_what_plain_python_does() -> None:
    """The functions as written, called by the interpreter, which also checks every index."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(6, 4))
    matrix = vectors.T @ vectors
    ours, plain, interpreted = np.empty((4, 4)), np.empty((4, 4)), inspect.unwrap(linear_algebra.cholesky)
    assert linear_algebra.cholesky(matrix, ours)
    assert interpreted(matrix, plain)
    assert interpreted is not linear_algebra.cholesky
    np.testing.assert_allclose(ours, plain, rtol=1e-13, atol=1e-14)
    assert not linear_algebra.cholesky(-matrix, ours)
