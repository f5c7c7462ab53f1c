"""What it costs to begin: the size of a core installation, importing slatewise, and the first slate."""

import tempfile
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from statistics import median

from packaging.requirements import Requirement

from benchmarks.measure import MEGABYTE, ROOT, SOURCE, MissingError, python

IMPORT = """
import time
start = time.perf_counter()
import slatewise
print(time.perf_counter() - start)
"""
FIRST_SLATE = """
import time
start = time.perf_counter()
import slatewise
from benchmarks.inputs import Visitor, random_catalog
imported = time.perf_counter()
catalog = random_catalog({n_items}, 20)
built = time.perf_counter()
Visitor.new("dc2b-calibrated", catalog).select()
print(imported - start + time.perf_counter() - built)
"""


def run(n_items: int = 10_000, repeats: int = 3, import_repeats: int = 11) -> dict[str, float]:
    """Measure in new processes: importing, and the first slate with an empty and with a filled cache of kernels.

    The first slate counts from before `import slatewise` to after the slate; the catalog is in memory, and building it
    does not count.
    """
    python(["-c", IMPORT])
    first_slates = [_first_slates(n_items) for _ in range(repeats)]
    return {
        "import_s": median(float(python(["-c", IMPORT])) for _ in range(import_repeats)),
        "first_slate_cold_s": median(cold for cold, _ in first_slates),
        "first_slate_warm_s": median(warm for _, warm in first_slates),
        "core_install_mb": core_install_bytes() / MEGABYTE,
    }


def _first_slates(n_items: int) -> tuple[float, float]:
    """Return the seconds to the first slate of two processes: the second finds what the first one compiled."""
    with tempfile.TemporaryDirectory() as cache:
        code, environment = FIRST_SLATE.format(n_items=n_items), {"NUMBA_CACHE_DIR": cache}
        return float(python(["-c", code], environment)), float(python(["-c", code], environment))


def core_install_bytes() -> int:
    """Return the size of slatewise and of everything that it needs without extras, as installed here."""
    own = sum(
        path.stat().st_size for path in (SOURCE / "slatewise").rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    return own + sum(map(_installed_bytes, core_packages()))


def core_packages() -> set[str]:
    """Return the names of all packages that an installation without extras consists of, besides slatewise."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pending, packages = [Requirement(text) for text in project["dependencies"]], set()
    while pending:
        requirement = pending.pop()
        if requirement.name in packages or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        packages.add(requirement.name)
        pending += [Requirement(text) for text in _distribution(requirement.name).requires or ()]
    return packages


def _installed_bytes(package: str) -> int:
    paths = [Path(str(file.locate())) for file in _distribution(package).files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _distribution(package: str) -> Distribution:
    try:
        return Distribution.from_name(package)
    except PackageNotFoundError:
        raise MissingError(f"{package}, which the core needs, is not installed; pip install -e . installs it") from None
