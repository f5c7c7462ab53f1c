"""Whether what is said is what is clicked, on validation users inside the training users of each split.

Run: python experiments/calibration.py ml-100k [--splits 3]
No test user is looked at. Everybody looks at everything and sees five slates of ten, which are learned from as a
service does by default; said is compared with clicked on all slates after the first, for each number of slates after
which half of the weight of a skip is made up for (`slatewise.policies.calibrated`), and without that.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import polars as pl

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.sources import load
from slatewise.evidence import SERVICE_DEFAULT
from slatewise.lab.calibration import LEAST, calibration_curve, mean_error
from slatewise.lab.experiment import TEST_SHARE
from slatewise.lab.simulate import Audience, Session, simulate
from slatewise.lab.tuning import VALIDATION_SHARE
from slatewise.policies.calibrated import Calibrated, odds_factor, with_odds
from slatewise.policies.protocol import Floats

HALFWAY = (1.0, 2.0, 3.0, 4.0, 6.0)


def answers(dataset: Dataset, seed: int, tells_seen: bool) -> tuple[Floats, Floats, Floats]:
    """Return what the belief has said, what was clicked, and the number of slates before, of all later slates."""
    training, _ = dataset.split(TEST_SHARE, seed)
    others, validation = training.split(VALIDATION_SHARE, seed)
    policy = Calibrated(Catalog.train(others, BprSettings(epochs=1, seed=seed)))
    audience = Audience(attention=SERVICE_DEFAULT, tells_seen=tells_seen)
    records = simulate(policy, validation, Session(seed=seed, audience=audience)).filter(pl.col("round") > 0)
    said, clicked, rounds = (records[name].to_numpy().astype(float) for name in ("log_probability", "clicked", "round"))
    return np.exp(said), clicked, rounds


def measures(said: Floats, clicked: Floats) -> dict[str, float]:
    """Return means, the mean distance of said and clicked over tenths, and the log-loss."""
    error = mean_error(calibration_curve(said, clicked))
    clipped = np.clip(said, LEAST, 1.0 - LEAST)
    loss = -(clicked * np.log(clipped) + (1.0 - clicked) * np.log1p(-clipped)).mean()
    return {"said": said.mean(), "clicked": clicked.mean(), "error": error, "log-loss": float(loss)}


def rows(dataset: Dataset, splits: int) -> Iterator[dict[str, float | str]]:
    """Yield a row for each way to say it."""
    for tells_seen, label in ((True, "seen is told"), (False, "untold")):
        parts = [answers(dataset, seed, tells_seen) for seed in range(splits)]
        said, clicked, rounds = (np.concatenate(part) for part in zip(*parts, strict=True))
        yield {"evidence": label, "halfway": "never", **measures(said, clicked)}
        for halfway in HALFWAY:
            exponent = rounds / (rounds + halfway)
            better = with_odds(said[:, None], SERVICE_DEFAULT.skip_weight**exponent)[:, 0]
            yield {"evidence": label, "halfway": f"{halfway:g}", **measures(better, clicked)}
        kept = with_odds(said[:, None], odds_factor(rounds.astype(np.int64), SERVICE_DEFAULT.skip_weight))[:, 0]
        yield {"evidence": label, "halfway": "as it is", **measures(kept, clicked)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--splits", type=int, default=3)
    given = parser.parse_args()
    print(pl.DataFrame([*rows(load(given.data), given.splits)]).write_csv(float_precision=4))


if __name__ == "__main__":
    main()
