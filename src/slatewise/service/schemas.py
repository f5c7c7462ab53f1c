"""Bodies of requests (strict types, bounded sizes, no unknown fields) and of responses."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from slatewise.recommender.event_kinds import CATEGORY, EVENT, EVENT_KINDS, ITEM
from slatewise.recommender.events import Event
from slatewise.recommender.slate_rules import MAX_RULES, NO_RULES, SlateRules
from slatewise.recommender.types import MAX_CONDITION, EventReceipt, PolicyResult, Receipt

MAX_ID_LENGTH = 256
MAX_EVENTS = 100
MAX_ITEMS = 10_000
MAX_VECTOR_NUMBERS = 1_000_000
LARGEST_NUMBER = 1e30
"""Bound of scores and vector components, far from where sums of squares overflow."""

Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH, pattern=r"^[^\x00]*$")]
Integer = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
ItemId = Integer | Id
Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Length = Annotated[int, Field(ge=1, le=500)]
ItemIds = Annotated[tuple[ItemId, ...], Field(max_length=MAX_ITEMS, strict=False)]
Categories = Annotated[tuple[Id, ...], Field(max_length=100, strict=False)]
SlateItems = Annotated[tuple[ItemId, ...], Field(max_length=500, strict=False)]
Grade = Annotated[tuple[ItemId, Share], Field(strict=False)]
Condition = Annotated[str, Field(min_length=1, max_length=MAX_CONDITION)]
Time = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00]*$")]
Moment = Annotated[float, Field(ge=-1e11, le=1e11, allow_inf_nan=False)] | Annotated[str, Field(max_length=40)]
AttributeName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Attribute = bool | Number | Text | Annotated[list[Text], Field(max_length=100)]


class StrictModel(BaseModel):
    """A body whose types are taken literally: false is not a number, "10" is not 10, an unknown field is an error.

    Lists are read as tuples, which is the one thing that is not strict about them.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class BoostRule(StrictModel):
    """Items that meet a condition count as if their probability were higher (or lower) by a factor."""

    where: Condition
    factor: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class PinRule(StrictModel):
    """An item at a place of the slate, counted from 1."""

    item: ItemId
    place: Length


class AtMostRule(StrictModel):
    """At most n items with the same value of an attribute; `per` is its name, or `category`."""

    n: Length
    per: Id


class AtLeastRule(StrictModel):
    """At least n items that meet a condition."""

    n: Length
    where: Condition


class RulesBody(StrictModel):
    """What a slate must be like; conditions are in SQL's language, about the attributes of items."""

    filter: Condition | None = None
    boost: Annotated[tuple[BoostRule, ...], Field(max_length=MAX_RULES, strict=False)] = ()
    pin: Annotated[tuple[PinRule, ...], Field(max_length=MAX_RULES, strict=False)] = ()
    at_most: Annotated[tuple[AtMostRule, ...], Field(max_length=MAX_RULES, strict=False)] = ()
    at_least: Annotated[tuple[AtLeastRule, ...], Field(max_length=MAX_RULES, strict=False)] = ()
    min_probability: Share | None = None
    exclude_owned: bool = False

    def rules(self) -> SlateRules:
        """Return the rules that are set."""
        given = self.model_fields_set & RULES
        return SlateRules.of(self.model_dump(include=given)) if given else NO_RULES


class SlateBody(RulesBody):
    """Whom a slate is for, and what may be on it."""

    user: Id
    k: Length = 10
    diversity: Share | None = None
    candidates: ItemIds | None = None
    exclude: ItemIds | None = None
    categories: Categories | None = None
    policy: Id | None = None
    replaces: Id | None = None
    request_id: Id | None = None
    scenario: Id | None = None
    preview: bool = False


class FeedbackEvent(StrictModel):
    """How somebody reacted to a slate; `final` means that nothing more is expected: the slate is closed.

    `seen` lists the items that were looked at, or says how many from the top; `values` are pairs of an item and 0
    (refused) to 1 (liked).
    """

    slate_id: Id
    clicked: SlateItems = ()
    retracted: SlateItems = ()
    seen: SlateItems | Annotated[int, Field(ge=0, le=500)] | None = None
    values: Annotated[tuple[Grade, ...], Field(max_length=500, strict=False)] = ()
    disliked: SlateItems = ()
    event_id: Id | None = None
    final: bool = True
    user: Id | None = None


class FeedbackBatch(StrictModel):
    """Several events; each is recorded on its own, in no promised order, and one that fails stops no other."""

    events: Annotated[list[FeedbackEvent], Field(min_length=1, max_length=MAX_EVENTS)]


class EventBody(StrictModel):
    """Something that a user did with an item anywhere; `at` is when, in seconds since 1970, now if it is left out.

    Of the kinds `more` and `less` it names a `category` instead, and of the kind `retract` an earlier event to take
    back, by its id (`retracts`).
    """

    user: Id
    item: Annotated[ItemId | None, Field(description="what it is about, unless the kind says otherwise")] = None
    kind: Annotated[Id, Field(description="like, purchase, rating, view, hide, owned, more, less, retract and others")]
    value: Annotated[Number | None, Field(description="of a rating, −1 to 1, or the portion that was viewed")] = None
    at: Annotated[Time | None, Field(description="when it happened, in seconds since 1970; now if left out")] = None
    event_id: Annotated[Id | None, Field(description="the same event under the same id counts once")] = None
    category: Annotated[Id | None, Field(description="of what there should be more or less")] = None
    retracts: Annotated[Id | None, Field(description="the id of an event that is taken back")] = None

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        named = {ITEM: self.item, CATEGORY: self.category, EVENT: self.retracts}
        about = EVENT_KINDS[self.kind].about if self.kind in EVENT_KINDS else ITEM
        if [what for what, given in named.items() if given is not None] != [about]:
            field = "retracts" if about == EVENT else about
            raise PydanticCustomError("subject", f"an event of this kind names {field}, and nothing else")
        return self

    def event(self) -> Event:
        """Return the event that this is."""
        subject = next(given for given in (self.item, self.category, self.retracts) if given is not None)
        return Event(self.user, subject, self.kind, self.value, self.at, self.event_id)


class EventBatch(StrictModel):
    """Several events from anywhere; each is recorded on its own, and one that fails stops no other."""

    events: Annotated[list[EventBody], Field(min_length=1, max_length=MAX_EVENTS)]


class MergeBody(StrictModel):
    """The id that a person had before; everything known about it moves to the user in the path."""

    session: Annotated[Id, Field(alias="from")]


class ExportQuery(BaseModel):
    """Which page of an export: `after` is the `next` of the page before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[str, Field(max_length=1000)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


class RerankBody(StrictModel):
    """Scored candidates: items of the catalog, or vectors (and perhaps categories) sent along; one score for each."""

    scores: Annotated[list[Number], Field(min_length=1, max_length=MAX_ITEMS)]
    items: Annotated[list[ItemId], Field(max_length=MAX_ITEMS)] | None = None
    vectors: Annotated[list[list[Number]], Field(max_length=MAX_ITEMS)] | None = None
    categories: Annotated[list[Annotated[list[Id], Field(max_length=100)]], Field(max_length=MAX_ITEMS)] | None = None
    k: Length = 10
    diversity: Share = 0.5
    method: Literal["overlap", "dpp", "mmr"] | None = None


class TimeValue(StrictModel):
    """A time as an attribute: seconds since 1970, or text such as 2026-01-31T12:00:00Z."""

    time: Moment


class ItemBody(StrictModel):
    """What a shop says about an item; without a title or categories, those of the training count.

    Attributes are text, numbers, booleans, lists of text or times, by name. The item is not offered before
    `published_at`.
    """

    title: Annotated[Text, Field(max_length=1_000)] | None = None
    categories: Categories | None = None
    attributes: Annotated[dict[AttributeName, Attribute | TimeValue], Field(max_length=100)] = {}
    vector: Annotated[tuple[Number, ...], Field(min_length=1, max_length=4_096, strict=False)] | None = None
    available: bool = True
    published_at: Moment | None = None


class ItemPatch(ItemBody):
    """What changes about an item; what is left out stays, and an attribute that is null is removed."""

    attributes: Annotated[dict[AttributeName, Attribute | TimeValue | None], Field(max_length=100)] = {}  # type: ignore[assignment]


class IdentifiedItem(ItemBody):
    """What a shop says about the item with this id."""

    id: ItemId


class ItemBatch(StrictModel):
    """Several items, each once; they are written together or not at all."""

    items: Annotated[list[IdentifiedItem], Field(min_length=1, max_length=1_000)]


class ItemsQuery(BaseModel):
    """Which items to list: by text in id or title, by category, by availability, page by page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: Annotated[str, Field(max_length=MAX_ID_LENGTH)] = ""
    category: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    available: bool | None = None
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ExperimentBody(StrictModel):
    """Whether the named experiment shall run."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    running: bool


class PromoteBody(StrictModel):
    """The version of the catalog to put in use."""

    version: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


RULES = set(RulesBody.model_fields)
MODELS = (
    BoostRule,
    PinRule,
    AtMostRule,
    AtLeastRule,
    SlateBody,
    FeedbackEvent,
    FeedbackBatch,
    EventBody,
    EventBatch,
    MergeBody,
    RerankBody,
    TimeValue,
    ItemPatch,
    IdentifiedItem,
    ItemBatch,
    ItemsQuery,
    ExportQuery,
    ExperimentBody,
    PromoteBody,
)
FIELDS = {field.alias or name for model in MODELS for name, field in model.model_fields.items()}
"""The names that an error may point to."""


@dataclass(frozen=True)
class ProblemView:
    """An error, after RFC 9457; `errors` says where a body is wrong."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] | None = None


@dataclass(frozen=True)
class FailedEvent:
    """An event of a batch that was not recorded."""

    error: ProblemView


@dataclass(frozen=True)
class BatchResults:
    """What became of the events of a batch, in their order."""

    results: list[Receipt | FailedEvent]


@dataclass(frozen=True)
class EventBatchResults:
    """What became of the events from anywhere of a batch, in their order."""

    results: list[EventReceipt | FailedEvent]


@dataclass(frozen=True)
class RankedItem:
    """An item of the catalog at its new rank: its index in the request, its score, and its gain when it was chosen."""

    index: int
    id: int | str
    score: float
    gain: float


@dataclass(frozen=True)
class RankedVector:
    """A vector of the request at its new rank: its index, its score, and its gain when it was chosen."""

    index: int
    score: float
    gain: float


@dataclass(frozen=True)
class RerankResults:
    """The chosen candidates, best first."""

    results: list[RankedItem] | list[RankedVector]


@dataclass(frozen=True)
class ItemView:
    """An item of the catalog."""

    id: int | str
    title: str
    categories: tuple[str, ...]
    available: bool


@dataclass(frozen=True)
class ItemBatchResult:
    """How many items were written, and the version of the item table since."""

    items: int
    version: int


@dataclass(frozen=True)
class ItemList:
    """A page of the items that match, most liked first, and how many there are in all."""

    total: int
    items: list[ItemView]


@dataclass(frozen=True)
class PolicyView:
    """A policy that can be requested by name; share: of the users it is assigned to.

    `title` and `summary` are for people. `is_calibrated`: its probabilities are those of a click, so that they may be
    shown and added up; those of other policies only rank.
    """

    name: str
    share: float
    has_diversity_knob: bool
    summary: str
    title: str = ""
    is_calibrated: bool = False


@dataclass(frozen=True)
class CatalogView:
    """The catalog being served; name: of the data it was trained on; sha256: of its file, if it came from one."""

    items: int
    categories: tuple[str, ...]
    name: str
    dim: int
    sha256: str | None


@dataclass(frozen=True)
class VersionView:
    """A version of the catalog: when it was written, whether it is in use, and what it was trained on.

    `log_until` is the time up to which it has learned from the log, `start` the version that it started from then.
    """

    version: str
    is_current: bool
    written_at: float
    trained_on: str
    log_until: float | None
    start: str | None


@dataclass(frozen=True)
class LatencyView:
    """Percentiles of a route's response time over the last minutes, in milliseconds."""

    route: str
    requests: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class HistoryPoint:
    """Ten seconds of traffic, until the time `at`: per second, and response times in milliseconds, null without any.

    `click_rate` is the share of clicked items on the slates that got feedback, null without any.
    """

    at: float
    requests_per_second: float
    slates_per_second: float
    feedback_per_second: float
    p50: float | None
    p99: float | None
    click_rate: float | None


@dataclass(frozen=True)
class RateView:
    """The share of all people that is believed to like an item, its 95 % interval, and how many people it rests on.

    `is_new`: the catalog was not trained on the item.
    """

    id: ItemId
    title: str
    rate: float
    low: float
    high: float
    seen: float
    is_new: bool


@dataclass(frozen=True)
class CalibrationBin:
    """Items shown with similar probabilities: the mean of these, the share that was clicked with its 95 % interval.

    `n` is how many such items were seen; one that may have been overlooked counts in part.
    """

    said: float
    clicked: float
    low: float
    high: float
    n: float


@dataclass(frozen=True)
class TrainingView:
    """A training on schedule: running, accepted, refused, failed or interrupted, and the words and figures of the gate.

    `log_loss` and `calibration_error` are pairs, of the catalog that served and of the new one; `difference` is of the
    log-loss, new minus old, with its 95 % interval.
    """

    started_at: float
    finished_at: float | None
    outcome: str
    version: str | None
    words: tuple[str, ...]
    people: int | None
    log_loss: tuple[float, float] | None
    calibration_error: tuple[float, float] | None
    difference: tuple[float, float, float] | None


@dataclass(frozen=True)
class LiveView:
    """The service right now; rates are per second over the last minute, of the process that responds.

    `history` has one point per ten seconds of the last hour, the oldest first; `rates` the newest items and those
    whose rate is the least certain; `calibration` compares the probabilities of recent slates with clicks; `trainings`
    are the latest on schedule, the newest first.
    """

    slates_per_second: float
    feedback_per_second: float
    uptime: float
    latency: list[LatencyView]
    policies: list[PolicyResult]
    store: dict[str, int | float | str]
    rebuilt: int
    history: list[HistoryPoint]
    rates: list[RateView]
    calibration: list[CalibrationBin]
    trainings: list[TrainingView]


@dataclass(frozen=True)
class Health:
    """Whether the service is up."""

    status: Literal["ok"]
