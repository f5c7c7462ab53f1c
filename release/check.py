"""Check built packages in clean environments: `python -m release.check dist 1.2.3 --extras train,serve`.

The wheel and the source package must install, have the expected version, and choose a slate. Needs nothing but Python.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SLATE = """
import slatewise
from slatewise import Catalog, Recommender
catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
assert len(Recommender(catalog).recommend("ann").items) == 2
print(slatewise.__version__)
"""


def check(package: Path, version: str, extras: str) -> None:
    """Install a package into a new environment and use it; raise SystemExit if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        wanted = f"{package.resolve()}[{extras}]" if extras else str(package.resolve())
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted], folder)
        found = _run([python, "-c", SLATE], folder).strip()
        if found != version:
            raise SystemExit(f"error: {package.name} has version {found}, not {version}; run release.new_version first")
        if extras:
            _run([python, "-m", "slatewise", "about"], folder)
    print(f"{package.name}: version {version} installs and works")


def _run(command: list[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command[1:4])} failed: {done.stderr[-2000:]}")
    return done.stdout


def main(arguments: list[str]) -> None:
    """Check the wheel and the source package of a directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("version")
    parser.add_argument("--extras", default="")
    given = parser.parse_args(arguments)
    packages = [*given.dist.glob("*.whl"), *given.dist.glob("*.tar.gz")]
    if len(packages) != 2:
        raise SystemExit(f"error: {given.dist} should have one wheel and one source package; run make release")
    for package in packages:
        check(package, given.version, given.extras)


if __name__ == "__main__":
    main(sys.argv[1:])
