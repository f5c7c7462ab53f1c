"""What the recommender returns: slates with reasons, what it believes about a user, how policies compare."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slatewise.store.protocol import ItemId

if TYPE_CHECKING:
    from slatewise.policies import Policy

LEARNED, POPULAR, VARIETY, EXPLORING = "learned", "popular", "variety", "exploring"
PINNED, BOOSTED, RANKED, ASKED = "pinned", "boosted", "ranked", "asked"
REASONS = (LEARNED, ASKED, POPULAR, VARIETY, EXPLORING, PINNED, BOOSTED, RANKED)
"""Why an item is on a slate; see `slatewise.recommender.reasons`."""


MAX_CONDITION = 2_000
"""Characters of a condition on items."""


class RequestError(ValueError):
    """A request that cannot be served: it names something unknown or contradicts itself; nothing was changed.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> Recommender(catalog).recommend("ann", candidates=["coffee"])
    Traceback (most recent call last):
    slatewise.recommender.types.RequestError: the item at position 0 of candidates is not in the catalog
    """


class RuleError(RequestError):
    """A part of a request that cannot be used; `where` is its place in the request, `reason` what is wrong."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where, self.reason = where, reason

    def within(self, part: str) -> RequestError:
        """Return the error as one about a part of the request, which it is within."""
        where = self.where.removeprefix(part).removeprefix("/")
        return RuleError(where, self.reason) if where else RequestError(self.reason)


class NothingToShowError(RequestError):
    """A request for a slate that no item may be on."""


class UnknownSlateError(RequestError):
    """Feedback on a slate that was never shown, or whose user was forgotten.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> Recommender(catalog).feedback("no such slate")
    Traceback (most recent call last):
    slatewise.recommender.types.UnknownSlateError: there is no such slate; feedback names the slate_id ...
    """


class UnknownUserError(RequestError):
    """A user about whom nothing is kept."""


class UnknownItemError(RequestError):
    """An item that neither the catalog nor the item table has."""


class UnknownEventError(RequestError):
    """A retraction of an event that was never sent, or whose user was forgotten."""


class ConflictError(RequestError):
    """An event id or a request id that was used before with different content.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> recommender = Recommender(catalog)
    >>> slate = recommender.recommend("ann")
    >>> receipt = recommender.feedback(slate.slate_id, ["tea"], event_id="click-1")
    >>> recommender.feedback(slate.slate_id, ["cocoa"], event_id="click-1")
    Traceback (most recent call last):
    slatewise.recommender.types.ConflictError: this event_id was used before with different content; ...
    """


@dataclass(frozen=True)
class PolicyShare:
    """A policy to serve: a name from POLICIES with options, or a policy object, and its share of the users.

    Examples
    --------
    >>> PolicyShare("dc2b", share=0.1, options={"temperature": 0})
    PolicyShare(policy='dc2b', share=0.1, options={'temperature': 0})
    """

    policy: "str | Policy"
    share: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SlateItem:
    """One item of a slate and why it is there.

    probability ± deviation: of a click, None if the policy has no belief or cannot say how sure it is; diversity_gain:
    what the item adds to the variety of the slate, in the policy's units; reason: one of REASONS, what decided that it
    is here; because: if that is LEARNED, the id and the title of the liked item that raised it most; if ASKED, what was
    asked for, such as "more Sci-Fi"; distance: how unlike the other items of the slate it is, the mean of
    1 − similarity (see `Slate`), None if nothing is known.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> item = Recommender(catalog).recommend("ann").items[0]
    >>> item.id, item.title, item.distance
    ('cocoa', 'cocoa', 1.0)
    """

    id: ItemId
    title: str
    categories: tuple[str, ...]
    probability: float | None
    deviation: float | None
    diversity_gain: float
    reason: str
    because: ItemId | None = None
    because_title: str | None = None
    distance: float | None = None


@dataclass(frozen=True)
class UnmetRule:
    """A rule that a slate does not meet: its kind, its number among those of its kind, counted from 0, and why."""

    rule: str
    number: int
    reason: str


@dataclass(frozen=True)
class Rate:
    """The share of all people that is believed to click an item that they see, with its 95 % interval.

    seen: how many people who saw the item that belief is worth, by the training and since; few for a new item.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])).rate("tea").seen
    2.0
    """

    value: float
    low: float
    high: float
    seen: float


@dataclass(frozen=True)
class RatedItem:
    """An item with its rate; is_new: the catalog was not trained on it."""

    id: ItemId
    title: str
    rate: Rate
    is_new: bool


@dataclass(frozen=True)
class ItemDetails:
    """What is known about an item: by training, or by what the shop said since.

    trained: whether the catalog was trained on it; updated_at: when the shop last changed it, None if it never did;
    rate: how many people click it who see it, None if slates cannot hold it.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
    >>> recommender.item("tea").available, recommender.item("tea").trained
    (True, True)
    """

    id: ItemId
    title: str
    categories: tuple[str, ...]
    attributes: dict[str, Any]
    available: bool
    published_at: float | None
    trained: bool
    vector: tuple[float, ...] | None = None
    updated_at: float | None = None
    rate: Rate | None = None


@dataclass(frozen=True)
class Slate:
    """A recorded list of items to show, number `number` of its user, counted from 0; feedback names its slate_id.

    variety: the mean of 1 − similarity over its pairs of items, None if nothing is known about them. Two items are as
    similar as the Jaccard index of their categories, if both have some, else as the cosine of their vectors
    (`Catalog.similarity_vectors`), not below 0; an item with neither, or with a vector of zeros, cannot be compared.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> slate = Recommender(catalog).recommend("ann")
    >>> slate.user, slate.number, len(slate.items)
    ('ann', 0, 2)
    """

    slate_id: str
    user: str
    number: int
    policy: str
    variety: float | None
    items: tuple[SlateItem, ...]
    unmet: tuple[UnmetRule, ...] = ()


@dataclass(frozen=True)
class Preview:
    """The slate that would be chosen now; nothing was recorded, and it takes no feedback.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> preview = Recommender(catalog).preview("ann")
    >>> preview.user, preview.number, len(preview.items)
    ('ann', 0, 2)
    """

    user: str
    number: int
    policy: str
    variety: float | None
    items: tuple[SlateItem, ...]
    unmet: tuple[UnmetRule, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """What became of a feedback event.

    duplicate: it had arrived before; closed: the slate is now counted; late: it was counted before the event arrived.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
    >>> recommender = Recommender(catalog)
    >>> recommender.feedback(recommender.recommend("ann").slate_id, ["tea"]).closed
    True
    """

    slate_id: str
    event_id: str
    duplicate: bool
    closed: bool
    late: bool


@dataclass(frozen=True)
class EventReceipt:
    """What became of an event from elsewhere.

    duplicate: it had arrived before; known: the catalog has the item, so that the event teaches something already.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> from slatewise.recommender import Event
    >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
    >>> recommender.record_event(Event("ann", "tea", "purchase")).known
    True
    """

    user: str
    event_id: str
    duplicate: bool
    known: bool


@dataclass(frozen=True)
class MergeReceipt:
    """How much of what was known about `merged` moved to a user; all 0 if there was nothing, or nothing any more.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
    >>> slate = recommender.recommend("session-1")
    >>> recommender.merge("ann", "session-1").slates, recommender.merge("ann", "session-1").slates
    (1, 0)
    """

    user: str
    merged: str
    slates: int
    feedback: int
    events: int


@dataclass(frozen=True)
class ReplayedSlate:
    """A logged slate, and the items that are chosen in its place from the log as it was; or why that cannot be done.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
    >>> slate = recommender.recommend("ann")
    >>> [replayed.is_same for replayed in recommender.replay()]
    [True]
    """

    user: str
    number: int
    slate_id: str
    items: tuple[ItemId, ...]
    again: tuple[ItemId, ...]
    obstacle: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether the same items were chosen again, in the same order."""
        return self.obstacle is None and self.items == self.again


@dataclass(frozen=True)
class CategoryView:
    """What is believed about a category: lift ± deviation, and what was shown and clicked.

    The lift says how much more this user likes the category than other categories, compared with everybody else: 0 is
    the average user, and 1 is a standard deviation of all users, so one user in six is above it. None if the policy has
    no belief.
    """

    name: str
    lift: float | None
    deviation: float | None
    shown: int
    clicked: int


@dataclass(frozen=True)
class Round:
    """One counted slate in a user's history; x and y are the belief after it in two dimensions, if it has one."""

    number: int
    policy: str
    shown: int
    clicks: int
    variety: float | None
    x: float | None
    y: float | None


@dataclass(frozen=True)
class UserView:
    """What the recommender believes about a user; landmarks are categories (name, x, y) in the plane of the rounds."""

    user: str
    policy: str
    slates: int
    clicks: int
    categories: tuple[CategoryView, ...]
    rounds: tuple[Round, ...]
    landmarks: tuple[tuple[str, float, float], ...] = ()
    liked: tuple[tuple[ItemId, str], ...] = field(default=())


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval; None where there is too little data."""

    value: float | None
    low: float | None
    high: float | None


UNKNOWN = Interval(None, None, None)


@dataclass(frozen=True)
class PolicyResult:
    """How a policy does; users are the unit of its confidence intervals, since users were assigned.

    The 95 % intervals of click_rate and diversity are for one look. difference is the click rate minus that of the
    control, the policy with the largest share; its interval holds at all times at once, so it may be looked at any
    time. slates_needed: about how many more slates of both until a difference of `effect` would be seen with
    probability 80 %; verdict: what may be concluded now, in words. Of a named experiment only what happened since its
    start counts, the control is the one it names, and days_needed says how long that many slates take at its pace;
    once it is stopped, nothing more is needed.
    """

    policy: str
    share: float
    users: int
    slates: int
    clicks: int
    click_rate: Interval
    diversity: Interval
    difference: Interval = UNKNOWN
    control: str | None = None
    effect: float | None = None
    slates_needed: int | None = None
    verdict: str = ""
    experiment: str | None = None
    started_at: float | None = None
    stopped_at: float | None = None
    days_needed: float | None = None
