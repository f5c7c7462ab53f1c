"""The packages that slatewise depends on: named in pyproject.toml, and what those need, as installed here."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("train", "report", "serve", "postgres", "dask", "client")
LONGEST_LICENSE = 40


@dataclass(frozen=True)
class Dependency:
    """One installed package: its license, the packages it needs, and the parts of slatewise that need it.

    parts: `core` and extras; empty if only other packages need it.
    """

    name: str
    version: str
    license: str
    needs: tuple[str, ...]
    parts: tuple[str, ...] = ()


def direct_requirements(root: Path = ROOT) -> dict[str, list[Requirement]]:
    """Return what pyproject.toml names, for the core and for each extra that users install."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = {"core": project["dependencies"], **{name: project["optional-dependencies"][name] for name in EXTRAS}}
    return {part: [Requirement(text) for text in texts] for part, texts in parts.items()}


def dependencies() -> list[Dependency]:
    """Return all packages that slatewise with every extra needs on this machine, by name.

    Raises LookupError if one is not installed.
    """
    parts: dict[str, list[str]] = {}
    waiting: list[tuple[str, str]] = []
    for part, requirements in direct_requirements().items():
        for requirement in requirements:
            parts.setdefault(canonicalize_name(requirement.name), []).append(part)
            waiting += _with_extras(requirement)
    needs: dict[str, set[str]] = {}
    seen = set()
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        found = _needed(*pair)
        needs.setdefault(pair[0], set()).update(canonicalize_name(requirement.name) for requirement in found)
        waiting += [following for requirement in found for following in _with_extras(requirement)]
    return [_describe(name, needs[name], parts.get(name, [])) for name in sorted(needs)]


def _with_extras(requirement: Requirement) -> list[tuple[str, str]]:
    """Return a package once as it is, and once for each of its extras that is asked for."""
    name = canonicalize_name(requirement.name)
    return [(name, extra) for extra in ("", *sorted(requirement.extras))]


def _needed(name: str, extra: str) -> list[Requirement]:
    """Return what a package needs here, for one of its extras or for none."""
    try:
        texts = distribution(name).requires or []
    except PackageNotFoundError:
        raise LookupError(f"{name} is not installed; `make test` installs everything") from None
    requirements = map(Requirement, texts)
    return [found for found in requirements if found.marker is None or found.marker.evaluate({"extra": extra})]


def _describe(name: str, needs: Iterable[str], parts: Iterable[str]) -> Dependency:
    metadata = distribution(name).metadata
    return Dependency(name, distribution(name).version, license_of(metadata), tuple(sorted(needs)), tuple(parts))


def license_of(metadata: PackageMetadata) -> str:
    """Return a package's license: the SPDX expression, the short text or the classifiers, whichever it has first."""
    fields = {name: metadata[name] for name in ("License-Expression", "License") if name in metadata}
    if "License-Expression" in fields:
        return fields["License-Expression"]
    classifiers = [text for text in metadata.get_all("Classifier") or [] if text.startswith("License ::")]
    names = sorted({text.split(" :: ")[-1] for text in classifiers} - {"OSI Approved"})
    text = fields.get("License", "").strip()
    if text and len(text) <= LONGEST_LICENSE and "\n" not in text:
        return text
    return " and ".join(names) or "not stated"
