"""A slate for one user, as the service asks for it, over one pass through the vectors."""

from functools import partial

import numpy as np

from slatewise.bench.measure import Work, seconds
from slatewise.bench.worlds import Visitor, random_catalog
from slatewise.catalog import Catalog

DIM = 20


def run(many: int = 1_000_000, some: int = 10_000, repeats: int = 21) -> dict[str, float]:
    """Measure `policy.select`: sampling θ, scoring and choosing, for someone who has answered five slates.

    The pass is the faster of X @ θ with X in rows and in columns, both float32.
    """
    catalog = random_catalog(many, DIM)
    columns, theta = np.asfortranarray(catalog.vectors), np.ones(DIM, dtype=np.float32)
    passes = {"rows": partial(np.matmul, catalog.vectors, theta), "columns": partial(np.matmul, columns, theta)}
    large = seconds({**passes, **_asking(catalog)}, repeats)
    small = seconds(_asking(random_catalog(some, DIM)), 10 * repeats, warm_ups=10)
    one_pass = min(large[name] for name in passes)
    return {
        "pass_1m_ms": one_pass * 1e3,
        "slate_1m_over_pass": large["dc2b"] / one_pass,
        "slate_1m_calibrated_over_pass": large["dc2b-calibrated"] / one_pass,
        "slate_10k_ms": small["dc2b"] * 1e3,
        "slate_10k_calibrated_ms": small["dc2b-calibrated"] * 1e3,
    }


def _asking(catalog: Catalog) -> dict[str, Work]:
    return {name: Visitor.of(name, catalog).ask for name in ("dc2b", "dc2b-calibrated")}
