"""The catalog: everything a policy needs to know about items and about users in general."""

from slatewise.catalog.catalog import Catalog
from slatewise.catalog.model_files import CatalogError

__all__ = ["Catalog", "CatalogError"]
