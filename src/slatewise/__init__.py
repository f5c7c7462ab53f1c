"""slatewise: varied short lists of items, personalised click by click.

The names below are loaded when they are first used, so that `import slatewise` is quick and needs only numpy.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from slatewise.version import __version__

if TYPE_CHECKING:
    from slatewise.catalog import Catalog as Catalog
    from slatewise.data.dataset import Dataset as Dataset
    from slatewise.policies import make_policy as make_policy
    from slatewise.recommender import Recommender as Recommender

if sys.version_info < (3, 11):  # noqa: UP036 (a checkout can be run without being installed)
    raise ImportError(f"slatewise needs Python 3.11 or newer, and this is {sys.version.split()[0]}", name=__name__)

_HOMES = {
    "Catalog": "catalog",
    "Dataset": "data.dataset",
    "Recommender": "recommender",
    "make_policy": "policies",
}

__all__ = ["Catalog", "Dataset", "Recommender", "__version__", "make_policy"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slatewise' has no attribute {name!r}")
    try:
        return getattr(import_module(f"slatewise.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} needs {error.name}: pip install 'slatewise[train]'") from error
