"""The catalogue: everything a policy needs to know about items and about people in general."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.catalog.brought import order_of, population_of
from slatewise.catalog.embeddings import BprSettings, Factors, train_bpr
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.catalog.model_files import Arrays, CatalogError, read_model, write_model
from slatewise.catalog.population import item_log_odds, item_scale, mean_and_covariance
from slatewise.catalog.taste import co_likes, linearised_taste, taste_vectors
from slatewise.categories import indicators
from slatewise.version import __version__

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

__all__ = ["Catalog", "CatalogError"]

LARGEST = {"items": 50_000_000, "dim": 4_096, "rank": 4_096, "categories": 10_000}
EXPECTED = {
    "vectors": ("items", "dim"),
    "log_odds": ("items",),
    "categories": ("items", "categories"),
    "population_mean": ("dim",),
    "population_covariance": ("dim", "dim"),
    "taste_vectors": ("items", "rank"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Catalog:
    """Items with their vectors, and the population of users; frozen.

    Items stand in the order of their ids. Normalisation: item vectors have a root mean square length
    of 1, and user vectors are scaled the other way, so that inner products stay what training made them.

    vectors: (n_items, dim) float32; log_odds: (n_items,), the crowd's log-odds of liking each item;
    population_mean: (dim,) and population_covariance: (dim, dim), of the training users' vectors;
    taste_vectors: (n_items, rank) float32, how likes vary together (see `catalog.taste`);
    categories: (n_items, n_categories) indicators; about: where all this came from;
    co_likes: (n_items, n_items) float32, how many training users like both, only if asked for.
    """

    item_ids: Identifiers
    titles: PackedText
    category_names: tuple[str, ...]
    categories: NDArray[np.bool_]
    vectors: NDArray[np.float32]
    log_odds: NDArray[np.float64]
    population_mean: NDArray[np.float64]
    population_covariance: NDArray[np.float64]
    taste_vectors: NDArray[np.float32]
    about: dict[str, Any]
    co_likes: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        _check(self)
        for name in (*EXPECTED, "co_likes"):
            if getattr(self, name) is not None:
                getattr(self, name).flags.writeable = False

    @classmethod
    def train(
        cls, dataset: "Dataset", settings: BprSettings | None = None, on_epoch: Callable[[], None] | None = None
    ) -> Self:
        """Learn item vectors by BPR-MF from these users and describe the population."""
        settings = settings or BprSettings()
        factors = train_bpr(dataset, settings, on_epoch)
        return cls.from_factors(dataset, factors, {"method": "bpr", **asdict(settings)})

    @classmethod
    def from_factors(cls, dataset: "Dataset", factors: Factors, training: dict[str, Any]) -> Self:
        """Normalise factors of the data set's users and items into a catalogue."""
        scale = item_scale(factors.item_vectors)
        mean, covariance = mean_and_covariance(factors.user_vectors / scale)
        return cls(
            item_ids=Identifiers.of(dataset.item_ids.tolist()),
            titles=PackedText.pack(dataset.titles),
            category_names=dataset.category_names,
            categories=dataset.categories.copy(),
            vectors=(factors.item_vectors * scale).astype(np.float32),
            log_odds=item_log_odds(np.bincount(dataset.items, minlength=dataset.n_items), dataset.n_users),
            population_mean=mean,
            population_covariance=covariance,
            taste_vectors=taste_vectors(dataset).astype(np.float32),
            about=_about(dataset, training),
        )

    def with_co_likes(self, dataset: "Dataset") -> Self:
        """Return the same catalogue with the co-likes of its training users, which the policy `ease` needs."""
        return replace(self, co_likes=co_likes(dataset))

    @classmethod
    def from_vectors(
        cls,
        item_ids: Iterable[Any],
        vectors: ArrayLike,
        *,
        titles: Iterable[str] | None = None,
        categories: Iterable[str | Iterable[str] | None] | None = None,
        interactions: "Dataset | None" = None,
    ) -> Self:
        """Make a catalogue of item vectors that exist already, such as text or image embeddings.

        With interactions the crowd's log-odds and the spread of users in this space are estimated from them;
        without, every item is equally likely and users are N(0, I). `categories` are names or `"A|B"` per item.
        """
        ids = [one.item() if isinstance(one, np.generic) else one for one in item_ids]
        matrix = np.array(vectors, dtype=np.float64)
        if matrix.ndim != 2 or len(matrix) != len(ids):
            raise CatalogError(f"{len(ids)} items need vectors of shape ({len(ids)}, dim), not {matrix.shape}")
        words = ids if titles is None else list(titles)
        groups = [None] * len(ids) if categories is None else list(categories)
        for name, values in (("titles", words), ("categories", groups)):
            if len(values) != len(ids):
                raise CatalogError(f"there are {len(values)} {name} for {len(ids)} items; give one per item")
        order = order_of(ids)
        names, matrix_of_categories = indicators(groups)
        matrix = matrix[order] * (item_scale(matrix) if np.isfinite(matrix).all() else 1.0)
        sorted_ids = Identifiers.of([ids[at] for at in order])
        population = population_of(sorted_ids, matrix, interactions)
        return cls(
            item_ids=sorted_ids,
            titles=PackedText.pack([str(words[at]) for at in order]),
            category_names=names,
            categories=matrix_of_categories[order],
            vectors=matrix.astype(np.float32),
            log_odds=population[0],
            population_mean=population[1],
            population_covariance=population[2],
            taste_vectors=linearised_taste(matrix, population[0], population[2]).astype(np.float32),
            about=_about(interactions, {"method": "vectors", "dim": matrix.shape[1]}),
        )

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read a saved catalogue; hash, version, shapes, finiteness and sizes are checked."""
        arrays, about, _ = read_model(Path(directory))
        try:
            ids = arrays["item_ids"] if "item_ids" in arrays else _text(arrays, "item_ids")
            return cls(
                item_ids=Identifiers(about["item_id_kind"], ids),
                titles=_text(arrays, "titles"),
                category_names=tuple(_text(arrays, "category_names")),
                categories=arrays["categories"].astype(bool),
                vectors=arrays["vectors"],
                log_odds=arrays["log_odds"],
                population_mean=arrays["population_mean"],
                population_covariance=arrays["population_covariance"],
                taste_vectors=arrays["taste_vectors"],
                about=about["origin"],
                co_likes=arrays.get("co_likes"),
            )
        except (KeyError, IndexError, UnicodeDecodeError) as error:
            raise CatalogError(f"{directory} is not a whole catalogue ({error!r}); train or copy it again") from error

    def save(self, directory: str | Path) -> str:
        """Write safetensors and a JSON manifest; return the sha256 of the arrays."""
        arrays: Arrays = {
            "vectors": self.vectors,
            "categories": self.categories.astype(np.uint8),
            "log_odds": self.log_odds,
            "population_mean": self.population_mean,
            "population_covariance": self.population_covariance,
            "taste_vectors": self.taste_vectors,
            **_packed("titles", self.titles),
            **_packed("category_names", PackedText.pack(self.category_names)),
        }
        if self.co_likes is not None:
            arrays["co_likes"] = self.co_likes
        ids = self.item_ids.values
        arrays |= _packed("item_ids", ids) if isinstance(ids, PackedText) else {"item_ids": ids}
        return write_model(Path(directory), arrays, {"item_id_kind": self.item_ids.kind, "origin": self.about})

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def dim(self) -> int:
        """Number of dimensions of the vectors."""
        return int(self.vectors.shape[1])

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return len(self.category_names)

    def index_of(self, item_id: object) -> int:
        """Return the number of an item; an unknown id is an error that names it."""
        place = self.item_ids.find(item_id)
        if place is None:
            raise CatalogError(f"item {item_id!r} is not in the catalogue; `slatewise catalog show` lists its items")
        return place

    def categories_of(self, item: int) -> tuple[str, ...]:
        """Names of the categories of one item, by its number."""
        return tuple(self.category_names[at] for at in np.flatnonzero(self.categories[item]))

    def __repr__(self) -> str:
        source = self.about.get("data", {}).get("name", "vectors brought along")
        return f"Catalog({self.n_items:,} items, {self.n_categories} categories, dim {self.dim}, from {source!r})"


def _check(catalog: Catalog) -> None:
    """Refuse a catalogue whose parts do not fit each other or are not finite."""
    sizes = {
        "items": len(catalog.item_ids),
        "dim": _width(catalog.vectors),
        "rank": _width(catalog.taste_vectors),
        "categories": len(catalog.category_names),
    }
    for what, size in sizes.items():
        if size > LARGEST[what] or (size == 0 and what != "categories"):
            raise CatalogError(f"a catalogue needs 1 to {LARGEST[what]:,} {what}, this one has {size:,}")
    optional = {} if catalog.co_likes is None else {"co_likes": ("items", "items")}
    for name, axes in {**EXPECTED, **optional}.items():
        array, shape = getattr(catalog, name), tuple(sizes[axis] for axis in axes)
        if array.shape != shape:
            raise CatalogError(f"{name} has shape {array.shape}, but {sizes['items']} items here need {shape}")
        if not np.isfinite(array).all():
            raise CatalogError(f"{name} holds NaN or infinite values; every number must be finite")
    if len(catalog.titles) != sizes["items"]:
        raise CatalogError(f"there are {len(catalog.titles)} titles for {sizes['items']} items")


def _width(table: NDArray[Any]) -> int:
    return int(table.shape[1]) if table.ndim == 2 else 0


def _about(dataset: "Dataset | None", training: dict[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {"slatewise": __version__, "training": training}
    if dataset is not None:
        about["data"] = {**dataset.describe(), "sha256": dataset.digest}
    return about


def _packed(name: str, text: PackedText) -> Arrays:
    return {f"{name}.utf8": text.buffer, f"{name}.ends": text.ends}


def _text(arrays: Arrays, name: str) -> PackedText:
    text = PackedText(arrays[f"{name}.utf8"], arrays[f"{name}.ends"])
    ends = text.ends
    if len(ends) and (ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(text.buffer)):
        raise IndexError(f"{name} does not fit its buffer")
    text.buffer.tobytes().decode()
    return text
