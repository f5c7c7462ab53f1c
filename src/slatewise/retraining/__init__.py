"""From the log of a service to a new catalog, and whether that predicts better than the one in use."""

from slatewise.retraining.fit import FitOptions, refit
from slatewise.retraining.gate import Verdict, compare
from slatewise.retraining.log import InteractionLog, LogBuilder

__all__ = ["FitOptions", "InteractionLog", "LogBuilder", "Verdict", "compare", "refit"]
