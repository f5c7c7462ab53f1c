"""slatewise: varied short lists of items, personalised click by click."""

__version__ = "0.1.0"
