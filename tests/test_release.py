"""What a release says about its dependencies is true: the lock file, the bill of materials, the list of licenses."""

import re
from email.message import Message

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.dependencies import ROOT, Dependency, dependencies, direct_requirements, license_of
from release.licenses import PAGE, row
from release.sbom import bill

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINNED = re.compile(r"^([\w.-]+)==([\w.+!-]+)(?: ; (.+?))? \\$", re.MULTILINE)


@pytest.fixture(scope="module")
def installed() -> list[Dependency]:
    return dependencies()


def unlocked(requirements: list[Requirement], lock: str) -> list[str]:
    """Which requirements no version in a lock file satisfies."""
    versions: dict[str, list[str]] = {}
    for name, version, _ in PINNED.findall(lock):
        versions.setdefault(canonicalize_name(name), []).append(version)
    return [
        str(wanted)
        for wanted in requirements
        if not versions.get(canonicalize_name(wanted.name))
        or not all(wanted.specifier.contains(version) for version in versions[canonicalize_name(wanted.name)])
    ]


def test_the_lock_file_has_every_dependency_in_a_version_that_is_allowed() -> None:
    assert unlocked([wanted for wanteds in direct_requirements().values() for wanted in wanteds], LOCK) == []


@pytest.mark.parametrize("wanted", ["numpy>=99", "a-package-of-nobody"])
def test_the_check_of_the_lock_file_can_fail(wanted: str) -> None:
    assert unlocked([Requirement(wanted)], LOCK) == [wanted]


def test_the_lock_file_has_hashes_and_no_address() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert len(entries) == len(PINNED.findall(LOCK))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in LOCK


def test_the_list_of_licenses_is_current(installed: list[Dependency]) -> None:
    """For what pyproject.toml names; what those need depends on versions and on the machine."""
    listed = PAGE.read_text(encoding="utf-8").splitlines()
    direct = [dependency for dependency in installed if dependency.parts]
    assert [row(dependency) for dependency in direct if row(dependency) not in listed] == []
    named = [line for line in listed if re.match(r"\| [\w.-]+ \| \w", line) and not line.startswith("| package")]
    assert len(named) == len(direct), "the page lists something that pyproject.toml no longer names"


def test_the_bill_of_materials_names_every_package_once_and_what_it_needs(installed: list[Dependency]) -> None:
    document = bill(installed)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    references = [part["bom-ref"] for part in document["components"]]
    assert len(set(references)) == len(references) == len(installed)
    assert "pkg:pypi/numpy@" in " ".join(references)
    known = {*references, document["metadata"]["component"]["bom-ref"]}
    assert {edge["ref"] for edge in document["dependencies"]} == known
    assert all(set(edge["dependsOn"]) <= known for edge in document["dependencies"])
    assert bill(installed) == document


@pytest.mark.parametrize(
    ("fields", "license_name"),
    [
        ([("License-Expression", "MIT"), ("License", "whatever")], "MIT"),
        ([("License", "BSD"), ("Classifier", "License :: OSI Approved :: BSD License")], "BSD"),
        ([("License", "Redistribution\nis permitted"), ("Classifier", "License :: OSI Approved :: X")], "X"),
        ([("Classifier", "Typing :: Typed")], "not stated"),
    ],
)
def test_a_license_is_what_a_package_says_of_itself(fields: list[tuple[str, str]], license_name: str) -> None:
    metadata = Message()
    for name, value in fields:
        metadata.add_header(name, value)
    assert license_of(metadata) == license_name  # type: ignore[arg-type]
