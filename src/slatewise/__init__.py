"""slatewise: short, varied lists of items, personalized click by click.

Public names are loaded when they are first used, so that `import slatewise` is quick.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from slatewise.version import __version__

if TYPE_CHECKING:
    from slatewise.catalog import Catalog as Catalog
    from slatewise.catalog import CatalogError as CatalogError
    from slatewise.data.dataset import Dataset as Dataset
    from slatewise.data.errors import DataError as DataError
    from slatewise.policies import POLICIES as POLICIES
    from slatewise.policies import Policy as Policy
    from slatewise.policies import make_policy as make_policy
    from slatewise.policies import policy_options as policy_options
    from slatewise.recommender import Recommender as Recommender
    from slatewise.recommender.types import ConflictError as ConflictError
    from slatewise.recommender.types import PolicyShare as PolicyShare
    from slatewise.recommender.types import Preview as Preview
    from slatewise.recommender.types import Receipt as Receipt
    from slatewise.recommender.types import RequestError as RequestError
    from slatewise.recommender.types import Slate as Slate
    from slatewise.recommender.types import SlateItem as SlateItem
    from slatewise.recommender.types import UnknownSlateError as UnknownSlateError
    from slatewise.slates import diversify as diversify
    from slatewise.store.protocol import StoreError as StoreError

if sys.version_info < (3, 11):  # noqa: UP036 (a checkout can be run without being installed)
    raise ImportError(f"slatewise needs Python 3.11 or newer, and this is {sys.version.split()[0]}", name=__name__)

_MODULES = {
    "Catalog": "slatewise.catalog",
    "CatalogError": "slatewise.catalog",
    "ConflictError": "slatewise.recommender.types",
    "DataError": "slatewise.data.errors",
    "Dataset": "slatewise.data.dataset",
    "POLICIES": "slatewise.policies",
    "PolicyShare": "slatewise.recommender.types",
    "Policy": "slatewise.policies",
    "Preview": "slatewise.recommender.types",
    "Receipt": "slatewise.recommender.types",
    "Recommender": "slatewise.recommender",
    "RequestError": "slatewise.recommender.types",
    "Slate": "slatewise.recommender.types",
    "SlateItem": "slatewise.recommender.types",
    "StoreError": "slatewise.store.protocol",
    "UnknownSlateError": "slatewise.recommender.types",
    "diversify": "slatewise.slates",
    "make_policy": "slatewise.policies",
    "policy_options": "slatewise.policies",
}

__all__ = [
    "POLICIES",
    "Catalog",
    "CatalogError",
    "ConflictError",
    "DataError",
    "Dataset",
    "Policy",
    "PolicyShare",
    "Preview",
    "Receipt",
    "Recommender",
    "RequestError",
    "Slate",
    "SlateItem",
    "StoreError",
    "UnknownSlateError",
    "__version__",
    "diversify",
    "make_policy",
    "policy_options",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'slatewise' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slatewise"):
            raise
        raise ModuleNotFoundError(f"{name} needs {error.name}: pip install '.[train]' in the checkout") from error


def __dir__() -> list[str]:
    return sorted(__all__)
