"""The class Catalog: items with their vectors, and the population of users."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.catalog.additions import NOTHING_KNOWN, NewItems, append_items, fit_content
from slatewise.catalog.content import ContentModel
from slatewise.catalog.embeddings import BprSettings, Factors, train_bpr
from slatewise.catalog.from_vectors import describe_population, one_per_item, sorted_order
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.catalog.mapped_arrays import shared
from slatewise.catalog.model_files import Arrays, CatalogError, read_model
from slatewise.catalog.population import item_log_odds, item_scale, mean_and_covariance, without_popularity
from slatewise.catalog.taste import co_likes, linearized_taste, taste_columns, taste_vectors
from slatewise.catalog.validation import AXES, check_catalog
from slatewise.catalog.versions import add_version
from slatewise.categories import indicators
from slatewise.version import __version__

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

UNKNOWN_LEVEL = 0.29
"""The standard deviation of a rate that may be anything from 0 to 1."""


@dataclass(frozen=True, eq=False, repr=False)
class Catalog:
    """Items with their vectors, and the population of users; frozen, arrays included.

    Items are in the order of their ids; those of `with_items` follow, in the order they were added. Item vectors are
    normalized to a root mean square length of 1 and user vectors are scaled inversely, so inner products stay what
    training made them. `train`, `from_vectors` and `load` create catalogs; the constructor takes the parts themselves
    and checks that they fit together.

    Parameters
    ----------
    item_ids : Identifiers
        Sorted ids, all integers, all text or all UUIDs.
    titles : PackedText
        One title per item.
    category_names : tuple of str
        The names of the categories.
    categories : array (n_items, n_categories) of bool
        Which item has which category.
    vectors : array (n_items, dim) of float32
        Item vectors.
    log_odds : array (n_items,)
        Log-odds that a user of the population likes each item.
    population_mean, population_covariance : arrays (dim,) and (dim, dim)
        Mean and covariance of the training users' vectors.
    taste_vectors : array (n_items, rank) of float32
        How likes vary together (see `slatewise.catalog.taste`).
    about : dict
        Where the catalog came from: versions, training settings, data.
    co_likes : array (n_items, n_items) of float32, optional
        How many training users like both items; rivals such as `ease` need it.
    rate_strength : array (n_items,), optional
        How many observations each item's log-odds are worth; by default one per training user.
    available : array (n_items,) of bool, optional
        Which items may be offered, unless a service's item table says otherwise; all by default.
    origin : Catalog, optional
        The catalog as it was trained, if this one has what an item table says; see `slatewise.catalog.live_items`.
    likes : array (n_likes, 2) of int32, optional
        A training user and an item in each row; the rivals `ials` and `rp3beta` need it.

    Examples
    --------
    >>> from slatewise import Catalog
    >>> catalog = Catalog.from_vectors(["tea", "coffee"], [[1.0, 0.0], [0.0, 1.0]], categories=["Hot", "Hot|Bitter"])
    >>> catalog
    Catalog(2 items, 2 categories, dim 2, from 'given vectors')
    >>> list(catalog.item_ids), catalog.category_names, catalog.vectors.shape
    (['coffee', 'tea'], ('Bitter', 'Hot'), (2, 2))
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
    rate_strength: NDArray[np.float64] | None = None
    available: NDArray[np.bool_] | None = None
    origin: "Catalog | None" = None
    likes: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        check_catalog(self)
        for name in (*AXES, "likes"):
            if getattr(self, name) is not None:
                getattr(self, name).flags.writeable = False

    @classmethod
    def train(
        cls, dataset: "Dataset", settings: BprSettings | None = None, on_epoch: Callable[[], None] | None = None
    ) -> Self:
        """Learn item vectors by BPR-MF from the users of a data set, and describe these users as the population.

        Parameters
        ----------
        dataset : Dataset
            Who liked what.
        settings : BprSettings, optional
            Dimensions, epochs, learning rate, regularization and seed.
        on_epoch : callable, optional
            Called without arguments after every epoch, for progress bars.

        Returns
        -------
        Catalog
            The same data and settings give the same catalog, bit by bit.

        Examples
        --------
        >>> from slatewise import Catalog
        >>> from slatewise.catalog.embeddings import BprSettings
        >>> from slatewise.data.sources import load
        >>> Catalog.train(load("synthetic"), BprSettings(dim=4, epochs=2))
        Catalog(400 items, 12 categories, dim 4, from 'synthetic')
        """
        _check_dataset(dataset)
        settings = settings or BprSettings()
        factors = train_bpr(dataset, settings, on_epoch)
        return cls.from_factors(dataset, factors, {"method": "bpr", **asdict(settings)})

    @classmethod
    def from_factors(cls, dataset: "Dataset", factors: Factors, training: dict[str, Any]) -> Self:
        """Turn user and item factors that you trained yourself into a catalog.

        Parameters
        ----------
        dataset : Dataset
            The users and items that the factors belong to.
        factors : Factors
            User vectors (n_users, dim) and item vectors (n_items, dim) whose inner products rank items.
        training : dict
            How the factors were trained; kept in `about["training"]`.

        Returns
        -------
        Catalog

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> from slatewise.catalog.embeddings import Factors
        >>> from slatewise.data.sources import load
        >>> dataset = load("synthetic")
        >>> factors = Factors(np.ones((dataset.n_users, 2)), np.ones((dataset.n_items, 2)))
        >>> Catalog.from_factors(dataset, factors, {"method": "none"}).population_mean.round(2)
        array([1.41, 1.41])
        """
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
            available=None if dataset.available is None else dataset.available.copy(),
        )

    def with_co_likes(self, dataset: "Dataset") -> Self:
        """Return the same catalog with the co-likes of its training users, which `ease` and other rivals need.

        Parameters
        ----------
        dataset : Dataset
            The data set the catalog was trained on.

        Returns
        -------
        Catalog

        Examples
        --------
        >>> from slatewise import Catalog
        >>> from slatewise.catalog.embeddings import BprSettings
        >>> from slatewise.data.sources import load
        >>> dataset = load("synthetic")
        >>> catalog = Catalog.train(dataset, BprSettings(dim=4, epochs=1)).with_co_likes(dataset)
        >>> catalog.co_likes.shape
        (400, 400)
        """
        return replace(self, co_likes=co_likes(dataset))

    def with_likes(self, dataset: "Dataset") -> Self:
        """Return the same catalog with the likes of its training users, which `ials` and `rp3beta` need.

        Parameters
        ----------
        dataset : Dataset
            The data set the catalog was trained on.

        Returns
        -------
        Catalog

        Examples
        --------
        >>> from slatewise import Catalog
        >>> from slatewise.catalog.embeddings import BprSettings
        >>> from slatewise.data.sources import load
        >>> dataset = load("synthetic")
        >>> catalog = Catalog.train(dataset, BprSettings(dim=4, epochs=1)).with_likes(dataset)
        >>> len(catalog.likes) == dataset.n_interactions
        True
        """
        return replace(self, likes=np.column_stack([dataset.users, dataset.items]).astype(np.int32))

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
        """Build a catalog from item vectors that you already have, such as text or image embeddings.

        Parameters
        ----------
        item_ids : iterable of int, str or UUID
            One distinct id per item, all of one type.
        vectors : array-like (n_items, dim)
            Item vectors, in the order of `item_ids`.
        titles : iterable of str, optional
            One title per item; the id by default.
        categories : iterable, optional
            The categories of each item: a list of names, `"A|B"`, or None.
        interactions : Dataset, optional
            Who liked what. With it, the log-odds of the items and the spread of users in the space of your vectors
            are estimated; without it, every item is equally likely and users are N(0, I).

        Returns
        -------
        Catalog

        Raises
        ------
        CatalogError
            If the arguments do not fit together.

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> catalog = Catalog.from_vectors([7, 3], np.eye(2), titles=["Tea", "Coffee"])
        >>> list(catalog.item_ids), list(catalog.titles)
        ([3, 7], ['Coffee', 'Tea'])
        """
        ids = [item_id.item() if isinstance(item_id, np.generic) else item_id for item_id in item_ids]
        matrix = np.array(vectors, dtype=np.float64)
        if matrix.ndim != 2 or len(matrix) != len(ids):
            raise CatalogError(f"{len(ids)} items need vectors of shape ({len(ids)}, dim), not {matrix.shape}")
        all_titles = one_per_item("titles", titles, ids)
        category_names, has_category = indicators(one_per_item("categories", categories, [None] * len(ids)))
        order = sorted_order(ids)
        scale = item_scale(matrix) if np.isfinite(matrix).all() else 1.0
        matrix = matrix[order] * scale
        identifiers = Identifiers.of([ids[index] for index in order])
        log_odds, mean, covariance = describe_population(identifiers, matrix, interactions)
        return cls(
            item_ids=identifiers,
            titles=PackedText.pack([str(all_titles[index]) for index in order]),
            category_names=category_names,
            categories=has_category[order],
            vectors=matrix.astype(np.float32),
            log_odds=log_odds,
            population_mean=mean,
            population_covariance=covariance,
            taste_vectors=_tastes(linearized_taste(matrix, log_odds, covariance), interactions).astype(np.float32),
            about=_about(interactions, {"method": "vectors", "dim": matrix.shape[1], "scale": scale}),
        )

    @classmethod
    def load(cls, directory: str | Path, version: str | None = None) -> Self:
        """Read a saved catalog; hash, version, shapes, sizes and finiteness are checked.

        Its arrays are mapped from the file: processes that load the same catalog hold it in memory once.

        Parameters
        ----------
        directory : str or Path
            The directory that `save` wrote.
        version : str, optional
            One of the versions that `slatewise catalog list` shows; by default the one in use.

        Returns
        -------
        Catalog

        Raises
        ------
        CatalogError
            If there is no catalog, or it is damaged.

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> _ = Catalog.from_vectors(["tea", "coffee"], np.eye(2)).save("shop")
        >>> Catalog.load("shop").n_items
        2
        """
        arrays, about, _ = read_model(Path(directory), version)
        try:
            ids = arrays["item_ids"] if "item_ids" in arrays else PackedText.from_arrays(arrays, "item_ids")
            return cls(
                item_ids=Identifiers(about["item_id_kind"], ids, about.get("n_added", 0)),
                titles=PackedText.from_arrays(arrays, "titles"),
                category_names=tuple(PackedText.from_arrays(arrays, "category_names")),
                categories=_booleans(arrays["categories"]),
                vectors=arrays["vectors"],
                log_odds=arrays["log_odds"],
                population_mean=arrays["population_mean"],
                population_covariance=arrays["population_covariance"],
                taste_vectors=arrays["taste_vectors"],
                about=about["origin"],
                co_likes=arrays.get("co_likes"),
                likes=arrays.get("likes"),
                rate_strength=arrays.get("rate_strength"),
                available=_booleans(arrays["available"]) if "available" in arrays else None,
            )
        except (KeyError, IndexError, UnicodeDecodeError) as error:
            raise CatalogError(f"{directory} is incomplete ({error!r}); train or copy the catalog again") from error

    def save(self, directory: str | Path, *, promote: bool = True) -> str:
        """Write the catalog as safetensors with a JSON manifest; readers see the old catalog or the new one.

        Of a catalog with what an item table says, the trained one is written.

        Parameters
        ----------
        directory : str or Path
            Created if needed. Catalogs that are there already are kept as earlier versions, up to five in all.
        promote : bool
            Whether this version is in use from now on; otherwise it is only kept next to the others.

        Returns
        -------
        str
            The sha256 of the arrays.

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> len(Catalog.from_vectors(["tea", "coffee"], np.eye(2)).save("shop"))
        64
        """
        if self.origin is not None:
            return self.origin.save(directory, promote=promote)
        arrays: Arrays = {
            "vectors": self.vectors,
            "categories": self.categories.astype(np.uint8),
            "log_odds": self.log_odds,
            "population_mean": self.population_mean,
            "population_covariance": self.population_covariance,
            "taste_vectors": self.taste_vectors,
            **self.titles.to_arrays("titles"),
            **PackedText.pack(self.category_names).to_arrays("category_names"),
        }
        available = None if self.available is None else self.available.astype(np.uint8)
        optional = {
            "co_likes": self.co_likes,
            "likes": self.likes,
            "rate_strength": self.rate_strength,
            "available": available,
        }
        arrays |= {name: array for name, array in optional.items() if array is not None}
        ids = self.item_ids.values
        arrays |= ids.to_arrays("item_ids") if isinstance(ids, PackedText) else {"item_ids": ids}
        about: dict[str, Any] = {"item_id_kind": self.item_ids.kind, "origin": self.about}
        if self.item_ids.n_added:
            about["n_added"] = self.item_ids.n_added
        return add_version(Path(directory), arrays, about, is_promoted=promote)

    def with_items(
        self,
        item_ids: Iterable[Any],
        *,
        titles: Iterable[str] | None = None,
        categories: Iterable[str | Iterable[str] | None] | None = None,
        vectors: Iterable[ArrayLike | None] | None = None,
    ) -> "Catalog":
        """Return the catalog with new items at its end, described by what items of similar content are like.

        Their rates, vectors and tastes are predicted from categories, words of the title and given vectors by a ridge
        regression on the trained items (`slatewise.catalog.content`); `rate_strength` says how far to trust the rates.
        The rows of all other items stay the same, bit by bit, so that beliefs about users remain valid.

        Parameters
        ----------
        item_ids : iterable of int, str or UUID
            Ids that the catalog does not have, of the type that its ids have.
        titles : iterable of str, optional
            One title per item; the id by default.
        categories : iterable, optional
            The categories of each item: a list of names, `"A|B"`, or None; they may be new.
        vectors : iterable, optional
            A vector or None for each item; only for catalogs of given vectors (`takes_vectors`).

        Returns
        -------
        Catalog

        Raises
        ------
        CatalogError
            If an id is there already or of another type, or the arguments do not fit together.

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> drinks = Catalog.from_vectors(["tea", "coffee"], np.eye(2), categories=["Hot", "Hot|Bitter"])
        >>> more = drinks.with_items(["cocoa"], categories=["Hot|Sweet"])
        >>> list(more.item_ids), more.index_of("cocoa"), more.category_names
        (['coffee', 'tea', 'cocoa'], 2, ('Bitter', 'Hot', 'Sweet'))
        """
        return append_items(self, NewItems.of(item_ids, titles, categories, vectors))

    @property
    def trained(self) -> "Catalog":
        """The catalog without what an item table says about its items."""
        return self.origin or self

    @cached_property
    def content_model(self) -> ContentModel:
        """What categories and words of titles say about an item; fitted when first used."""
        return fit_content(self, with_vectors=False)

    @cached_property
    def vector_model(self) -> ContentModel:
        """What categories, words of titles and the vector say about an item; fitted when first used."""
        return fit_content(self, with_vectors=True)

    @cached_property
    def similarity_vectors(self) -> NDArray[np.float32]:
        """The vectors whose cosines say how similar items are that have no categories.

        Given vectors are taken as they are, trained ones without what all popular items share (`without_popularity`).
        """
        if self.takes_vectors or not self.n_items or self.categories.any(axis=1).all():
            return self.vectors
        return shared(without_popularity(self.vectors, self.trained.popular_direction))

    @cached_property
    def popular_direction(self) -> NDArray[np.float64]:
        """The sum of the vectors of items that were trained, by how many users like them (dim,)."""
        n_trained = self.item_ids.n_sorted
        rates = 1.0 / (1.0 + np.exp(-self.log_odds[:n_trained]))
        return np.asarray(rates @ self.vectors[:n_trained].astype(np.float64))

    @cached_property
    def taste_columns(self) -> NDArray[np.int64]:
        """The categories that tastes have a column for, if this catalog is as it was trained."""
        return taste_columns(self)

    @property
    def takes_vectors(self) -> bool:
        """Whether the vectors were given, so that new items can bring one too."""
        training = self.about.get("training")
        return isinstance(training, Mapping) and training.get("method") == "vectors"

    @property
    def n_users(self) -> int:
        """Number of users that the log-odds come from; 0 without interactions."""
        return int(self.about.get("data", {}).get("users", 0))

    @property
    def knows_nothing(self) -> bool:
        """Whether no rate is known: vectors were given without interactions. The last taste is then one for all items.

        It is how much people click at all, which would otherwise be taken for a taste against whatever is shown.
        """
        return self.takes_vectors and not self.n_users

    @property
    def rate_strengths(self) -> NDArray[np.float64]:
        """How many observations the log-odds of each item are worth (n_items,)."""
        if self.rate_strength is not None:
            return self.rate_strength
        return np.full(self.n_items, self.n_users + 1.0 if self.n_users else NOTHING_KNOWN)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def dim(self) -> int:
        """Number of dimensions of the item vectors."""
        return int(self.vectors.shape[1])

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return len(self.category_names)

    def index_of(self, item_id: object) -> int:
        """Return the index of an item: its row in every array of the catalog.

        Parameters
        ----------
        item_id : int, str or UUID
            The id, of the type that the catalog's ids have.

        Returns
        -------
        int

        Raises
        ------
        CatalogError
            If the catalog has no such item.

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> Catalog.from_vectors(["tea", "coffee"], np.eye(2)).index_of("tea")
        1
        """
        index = self.item_ids.find(item_id)
        if index is None:
            raise CatalogError(f"item {item_id!r} is not in the catalog; `slatewise catalog show` lists its items")
        return index

    def categories_of(self, item: int) -> tuple[str, ...]:
        """Return the names of an item's categories.

        Parameters
        ----------
        item : int
            The index of the item.

        Returns
        -------
        tuple of str

        Examples
        --------
        >>> import numpy as np
        >>> from slatewise import Catalog
        >>> catalog = Catalog.from_vectors(["tea", "coffee"], np.eye(2), categories=["Hot", "Hot|Bitter"])
        >>> catalog.categories_of(catalog.index_of("coffee"))
        ('Bitter', 'Hot')
        """
        return tuple(self.category_names[column] for column in np.flatnonzero(self.categories[item]))

    def __repr__(self) -> str:
        source = self.about.get("data", {}).get("name", "given vectors")
        return f"Catalog({self.n_items:,} items, {self.n_categories} categories, dim {self.dim}, from {source!r})"


def _booleans(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return what is stored as bytes of 0 and 1, without a copy."""
    is_plain = numbers.dtype == np.uint8 and numbers.max(initial=0) <= 1
    return numbers.view(np.bool_) if is_plain else numbers.astype(np.bool_)


def _tastes(tastes: NDArray[np.float64], interactions: "Dataset | None") -> NDArray[np.float64]:
    """Return taste vectors, with a column for the level of all rates together if nothing is known about it."""
    return tastes if interactions is not None else np.hstack([tastes, np.full((len(tastes), 1), UNKNOWN_LEVEL)])


def _check_dataset(dataset: object) -> None:
    """Refuse what is no data set."""
    from slatewise.data.dataset import Dataset

    if not isinstance(dataset, Dataset):
        raise ValueError(
            f"dataset is of type {type(dataset).__name__}; give a Dataset, such as Dataset.from_files(path)"
        )


def _about(dataset: "Dataset | None", training: dict[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {"slatewise": __version__, "training": training}
    if dataset is not None:
        about["data"] = {**dataset.describe(), "sha256": dataset.digest}
    return about
