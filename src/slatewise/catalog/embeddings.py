"""BPR matrix factorization on the training users (Rendle et al. 2009), by cornac."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BprSettings:
    """What BPR-MF is trained with; negatives are drawn uniformly from all items, as in the paper's source."""

    dim: int = 10
    epochs: int = 50
    learning_rate: float = 0.01
    regularisation: float = 0.01
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Factors:
    """Vectors whose inner products rank items for users."""

    user_vectors: Floats
    item_vectors: Floats


def train_bpr(
    dataset: "Dataset", settings: BprSettings | None = None, on_epoch: Callable[[], None] | None = None
) -> Factors:
    """Learn user and item vectors; the same seed gives the same bits, because cornac then uses one thread."""
    settings = settings or BprSettings()
    if settings.dim < 1 or settings.epochs < 1:
        raise ValueError(f"dim and epochs must be at least 1, not {settings.dim} and {settings.epochs}")
    model = _reporting_model(settings, on_epoch or (lambda: None))
    model.fit(_cornac_dataset(dataset))
    factors = Factors(np.asarray(model.u_factors, np.float64), np.asarray(model.i_factors, np.float64))
    if not (np.isfinite(factors.user_vectors).all() and np.isfinite(factors.item_vectors).all()):
        raise ArithmeticError(f"BPR diverged with learning rate {settings.learning_rate}; choose a smaller one")
    return factors


def _cornac_dataset(dataset: "Dataset") -> Any:
    """Convert to cornac's format; items that nobody liked take part too, as negatives like any other."""
    from cornac.data import Dataset as CornacDataset

    users, items = dataset.users.astype(np.int32), dataset.items.astype(np.int32)
    ratings = np.ones(len(users), dtype=np.float32)
    names = ({user: user for user in range(dataset.n_users)}, {item: item for item in range(dataset.n_items)})
    return CornacDataset(dataset.n_users, dataset.n_items, *names, (users, items, ratings))


def _reporting_model(settings: BprSettings, on_epoch: Callable[[], None]) -> Any:
    try:
        from cornac.models import BPR
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("training needs cornac: pip install '.[train]' in the checkout") from error

    class ReportingBpr(BPR):  # type: ignore[misc]
        """cornac's BPR with a callback after each epoch."""

        def _fit_sgd(self, *arguments: Any) -> Any:
            result = super()._fit_sgd(*arguments)
            on_epoch()
            return result

    return ReportingBpr(
        k=settings.dim,
        max_iter=settings.epochs,
        learning_rate=settings.learning_rate,
        lambda_reg=settings.regularisation,
        use_bias=False,
        seed=settings.seed,
    )
