"""Registries that other packages can extend: built-in entries, plus whatever is installed under an entry-point group.

A package adds an entry in its pyproject.toml, for example

    [project.entry-points."slatewise.policies"]
    newest-first = "my_package:NewestFirst"

Entry points are looked up when a registry is first listed or lacks a name, and imported only when they are used.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

Entry = TypeVar("Entry", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


class PluginError(ValueError):
    """A plug-in that cannot be used; the message names the package it comes from and says why."""


class Registry(MutableMapping[str, Entry]):
    """A mapping from names to callables: built-in entries first, then those of installed packages.

    Code can add an entry by assignment. A plug-in never replaces a built-in entry: it is ignored, with a warning.

    Parameters
    ----------
    group : str
        The entry-point group of the plug-ins, such as `slatewise.policies`.
    noun : str
        What an entry is called in error messages, such as `policy`.
    built_in : Mapping[str, Callable]
        The entries that slatewise itself provides.

    Examples
    --------
    >>> from slatewise import POLICIES
    >>> list(POLICIES)[:3]
    ['logrank', 'mmr', 'epsilon-greedy']
    >>> "popular" in POLICIES
    True
    >>> POLICIES["popular"].__name__
    'Popular'
    """

    def __init__(self, group: str, noun: str, built_in: Mapping[str, Entry]) -> None:
        self.group, self.noun, self.built_in = group, noun, tuple(built_in)
        self._entries = dict(built_in)

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name] if name in self._entries else self._load(name)

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._entries, *self._plugins)))

    def __len__(self) -> int:
        return len({*self._entries, *self._plugins})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._plugins

    def provider(self, name: str) -> str | None:
        """Return the package that provides an entry, as `name version`; None for entries that are not plug-ins."""
        if name in self._entries or name not in self._plugins:
            return None
        return " and ".join(map(_package, self._plugins[name]))

    def packages(self) -> dict[str, str]:
        """Return the packages that provide plug-ins, with their versions."""
        points = (point for points in self._plugins.values() for point in points)
        return {point.dist.name: point.dist.version for point in points if point.dist}

    @cached_property
    def _plugins(self) -> dict[str, list[EntryPoint]]:
        """The entry points by name, not loaded; those that clash with a built-in entry are left out."""
        plugins: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            if point.name in self.built_in:
                _log.warning(
                    "the %s %r of the package %s is ignored: slatewise has a built-in %s of that name",
                    *(self.noun, point.name, _package(point), self.noun),
                )
            else:
                plugins.setdefault(point.name, []).append(point)
        return plugins

    def _load(self, name: str) -> Entry:
        point, *others = self._plugins[name]
        if others:
            raise PluginError(f"the {self.noun} {name!r} is provided by {self.provider(name)}; uninstall all but one")
        try:
            entry: Entry = point.load()
        except Exception as error:  # a plug-in can fail in any way while it is imported
            reason = f"{type(error).__name__}: {error}"
            raise PluginError(
                f"the {self.noun} {name!r} of the package {_package(point)} cannot be loaded ({reason}); "
                f"update or uninstall that package"
            ) from error
        if not callable(entry):
            raise PluginError(
                f"the {self.noun} {name!r} of the package {_package(point)} is a {type(entry).__name__} "
                f"({point.value}); its entry point must name a class or a function"
            )
        return entry


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
