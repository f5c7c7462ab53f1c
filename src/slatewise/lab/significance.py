"""Won, tied or lost: paired tests person by person, corrected for the number of comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.05
WON, TIE, LOST = "won", "tie", "lost"


@dataclass(frozen=True)
class Cell:
    """One comparison: our mean over people and theirs, for one metric, and how sure the difference is.

    `rival` is the label of an arm, or the paper; `at` is the value of our knob where diversity is held equal, else
    None. `p` is two-sided, of a paired t-test person by person; `p_holm` allows for all comparisons made together.
    """

    rival: str
    metric: str
    ours: float
    theirs: float
    p: float
    at: float | None = None
    p_holm: float = 1.0

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def verdict(self) -> str:
        """Won or lost if the corrected test says so, never by sign."""
        if self.p_holm >= LEVEL:
            return TIE
        return WON if self.difference > 0.0 else LOST

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        at = {} if self.at is None else {"at": self.at}
        values = {"ours": self.ours, "theirs": self.theirs, "difference": self.difference}
        return {"rival": self.rival, "metric": self.metric, **at, **values, **self._test()}

    def _test(self) -> dict[str, Any]:
        return {"p": self.p, "p_holm": self.p_holm, "verdict": self.verdict}


def paired_significance(differences: Floats) -> tuple[float, float]:
    """Two-sided p-values of a paired t-test and of Wilcoxon's signed-rank test; 1 if nothing differs."""
    from scipy import stats

    if not np.any(differences):
        return 1.0, 1.0
    return paired_t(differences), float(stats.wilcoxon(differences).pvalue)


def paired_t(differences: Floats) -> float:
    """Two-sided p-value of a paired t-test; 1 if nothing differs or there is nobody to compare."""
    from scipy import stats

    if len(differences) < 2 or not np.any(differences):
        return 1.0
    deviation = differences.std(ddof=1)
    if deviation == 0.0:
        return 0.0
    t = differences.mean() / (deviation / np.sqrt(len(differences)))
    return float(2.0 * stats.t.sf(abs(t), len(differences) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the given order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(p) for p in corrected]


def corrected(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells with p-values that allow for all of them."""
    return [replace(cell, p_holm=p) for cell, p in zip(cells, holm([cell.p for cell in cells]), strict=True)]


def count_verdicts(cells: Sequence[Cell]) -> str:
    """Describe how many cells were won, tied and lost.

    >>> count_verdicts([Cell("ease", "f", 0.5, 0.4, 0.001, p_holm=0.002)])
    '1 won, 0 tied, 0 lost'
    """
    verdicts = [cell.verdict for cell in cells]
    return f"{verdicts.count(WON)} won, {verdicts.count(TIE)} tied, {verdicts.count(LOST)} lost"
