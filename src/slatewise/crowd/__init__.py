"""The crowd: what everybody's log says about the items, and whether a new catalog predicts it better than the old."""

from slatewise.crowd.fit import CrowdFit, refit
from slatewise.crowd.gate import Verdict, compare
from slatewise.crowd.log import CrowdLog, LogBuilder

__all__ = ["CrowdFit", "CrowdLog", "LogBuilder", "Verdict", "compare", "refit"]
