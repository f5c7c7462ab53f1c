"""What the recommender shows: slates with reasons, what it thinks of a person, how policies compare."""

from dataclasses import dataclass, field

from slatewise.store.protocol import ItemId

CROWD, CLOSE, EXPLORING = "crowd favourite", "close to what you clicked", "exploring"
REASONS = (CROWD, CLOSE, EXPLORING)
"""Why an item is on a slate."""


class RequestError(ValueError):
    """A request that cannot be served: it names something unknown or contradicts itself; nothing was changed."""


class UnknownSlateError(RequestError):
    """Feedback for a slate that was never shown, or whose user was forgotten."""


class ConflictError(RequestError):
    """An event id that came before with other content."""


@dataclass(frozen=True)
class SlateItem:
    """One item of a slate and why it is there.

    probability ± deviation: of a click, None if the policy has no belief; diversity_gain: what it adds to the variety
    of the slate, in the policy's units; reason: one of CROWD, CLOSE, EXPLORING; because: the clicked item it is close
    to, by id, and that item's title.
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


@dataclass(frozen=True)
class Slate:
    """A list to show, the `number`-th of its user, from 0; a preview has no slate_id and takes no feedback."""

    slate_id: str | None
    user: str
    number: int
    policy: str
    variety: float
    items: tuple[SlateItem, ...]


@dataclass(frozen=True)
class Receipt:
    """What became of a feedback event: closed says whether the slate is now counted; late, that it was before."""

    slate_id: str
    event_id: str
    duplicate: bool
    closed: bool
    late: bool


@dataclass(frozen=True)
class CategoryView:
    """What is thought of a category: lift ± deviation over the crowd, and what was shown and clicked of it.

    The lift is the change of click probability, or of its logit, that the belief expects of the category's items;
    None if the policy has no belief.
    """

    name: str
    lift: float | None
    deviation: float | None
    shown: int
    clicked: int


@dataclass(frozen=True)
class Round:
    """One counted slate in a person's history; x and y are the belief after it in two dimensions, if it has one."""

    number: int
    policy: str
    shown: int
    clicks: int
    variety: float
    x: float | None
    y: float | None


@dataclass(frozen=True)
class PersonView:
    """What the recommender thinks of a person; landmarks are categories (name, x, y) in the plane of the rounds."""

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
    """An estimate with its 95 % confidence interval; None where there is not enough to say."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PolicyResult:
    """How a policy does: users are the unit of its confidence intervals, since users were assigned."""

    policy: str
    share: float
    users: int
    slates: int
    clicks: int
    click_rate: Interval
    diversity: Interval
