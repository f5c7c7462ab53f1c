"""Hooks of the documentation site: pages made from the code, and links from docs/ to other files of the repository."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "repository"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the reference pages, and every file of the repository that a page links to, directly or not."""
    from release.reference_pages import PAGES

    for uri, write in PAGES.items():
        files.append(File.generated(config, uri, content=write()))
    waiting = [file.src_uri for file in files if file.src_uri.endswith(".md") and file.src_uri not in PAGES]
    while waiting:
        for target in outside_links(waiting.pop()):
            uri = f"{REPOSITORY}/{target}"
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
                waiting += [uri] if uri.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files of the repository lead to their copies in the site."""
    return rewritten(markdown, page.file.src_uri)


def outside_links(uri: str) -> list[str]:
    """Return the files outside docs/ that a page links to, as paths in the repository."""
    text = (ROOT / source_of(uri)).read_text(encoding="utf-8")
    targets = [target_of(uri, link) for _, link, _ in LINK.findall(text)]
    return [target for target in targets if target is not None and not target.startswith("docs/")]


def source_of(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    return uri.removeprefix(f"{REPOSITORY}/") if uri.startswith(f"{REPOSITORY}/") else f"docs/{uri}"


def target_of(uri: str, link: str) -> str | None:
    """Return the file of the repository that a link of a page means; None if it means none."""
    if "://" in link or link.startswith(("/", "mailto:")):
        return None
    path = os.path.normpath(PurePosixPath(source_of(uri)).parent / link)
    return path if (ROOT / path).is_file() else None


def rewritten(markdown: str, uri: str) -> str:
    """Return a page whose links to files of the repository lead to where these are in the site."""

    def follow(match: re.Match[str]) -> str:
        target = target_of(uri, match[2])
        if target is None:
            return match[0]
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"{REPOSITORY}/{target}"
        return match[1] + os.path.relpath(place, PurePosixPath(uri).parent) + match[3]

    return LINK.sub(follow, markdown)
