"""Write a new version everywhere it is named: `python -m release.new_version 1.2.3`."""

import re
import sys
from datetime import date
from pathlib import Path

from slatewise.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "src/slatewise/version.py": (r'__version__ = "[^"]+"', '__version__ = "{version}"'),
    "CITATION.cff": (r"(?m)^version: .+$", "version: {version}"),
    "CHANGELOG.md": (r"(?m)^## Unreleased$", "## Unreleased\n\n## {version} ({today})"),
}
"""Files, what is replaced in each, and by what."""


def new_version(version: str, root: Path = ROOT) -> None:
    """Write a version into all files, or into none."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise SystemExit(f"error: {version!r} is not a version such as 1.2.3 or 1.2.3rc1")
    written = {}
    for name, (pattern, text) in PLACES.items():
        replacement = text.format(version=version, today=date.today().isoformat())
        written[name], count = re.subn(pattern, replacement, (root / name).read_text(encoding="utf-8"))
        if count != 1:
            raise SystemExit(f"error: {name} should name the version once, and does {count} times; nothing was changed")
    for name, content in written.items():
        write_whole(root / name, [content.encode()])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m release.new_version VERSION")
    new_version(sys.argv[1])
