"""`python -m release.sbom DIRECTORY` writes the bill of materials of slatewise with every extra, as CycloneDX 1.6.

It names the versions that are installed here; `make sbom` installs those of requirements.lock first. The same packages
give the same file, byte for byte.
"""

import json
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from release.dependencies import Dependency, dependencies
from slatewise.version import __version__


def bill(listed: list[Dependency]) -> dict[str, Any]:
    """Return the document: slatewise, the packages below it, and which needs which."""
    direct = tuple(dependency.name for dependency in listed if dependency.parts)
    ours = Dependency("slatewise", __version__, "MIT", direct)
    references = {dependency.name: reference(dependency) for dependency in [ours, *listed]}
    content = {
        "metadata": {"component": component(ours)},
        "components": [component(dependency) for dependency in listed],
        "dependencies": [
            {"ref": references[dependency.name], "dependsOn": _sorted(references[name] for name in dependency.needs)}
            for dependency in [ours, *listed]
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": number.urn, "version": 1, **content}


def component(dependency: Dependency) -> dict[str, Any]:
    """Describe one package."""
    return {
        "type": "library",
        "bom-ref": reference(dependency),
        "name": dependency.name,
        "version": dependency.version,
        "purl": reference(dependency),
        "licenses": [{"license": {"name": dependency.license}}],
    }


def reference(dependency: Dependency) -> str:
    """Return the package URL, which names a package in one way everywhere."""
    return f"pkg:pypi/{dependency.name}@{dependency.version}"


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


if __name__ == "__main__":
    file = Path(sys.argv[1]) / f"slatewise-{__version__}.cdx.json"
    file.write_text(json.dumps(bill(dependencies()), indent=2) + "\n", encoding="utf-8")
