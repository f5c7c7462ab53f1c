"""What requests may hold: strict types, bounded sizes, no unknown fields. Answers are described here too."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from slatewise.recommender.views import PolicyResult, Receipt

LONGEST_ID = 256
MOST_EVENTS = 100

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Item = Number | Name
Items = Annotated[list[Item], Field(max_length=10_000)]


class Strict(BaseModel):
    """A body whose types are taken literally: false is no number, "10" is not 10, an unknown field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SlateRequest(Strict):
    """Whom a slate is for, and what may be on it."""

    user: Name
    k: Annotated[int, Field(ge=1, le=500)] = 10
    diversity: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    candidates: Items | None = None
    exclude: Items | None = None
    categories: Annotated[list[Name], Field(max_length=100)] | None = None
    policy: Name | None = None
    replaces: Name | None = None
    preview: bool = False


class FeedbackEvent(Strict):
    """What was clicked on a slate, or taken back; final: nothing more is expected, so the slate is counted."""

    slate_id: Name
    clicked: Annotated[list[Item], Field(max_length=500)] = []
    retracted: Annotated[list[Item], Field(max_length=500)] = []
    event_id: Name | None = None
    final: bool = True


class FeedbackBatch(Strict):
    """Several events; each is recorded on its own, in no promised order, and one that fails stops no other."""

    events: Annotated[list[FeedbackEvent], Field(min_length=1, max_length=MOST_EVENTS)]


def _one_or_many(given: Any) -> Literal["one", "many"]:
    return "many" if isinstance(given, dict) and "events" in given else "one"


Feedback = Annotated[
    Annotated[FeedbackEvent, Tag("one")] | Annotated[FeedbackBatch, Tag("many")], Discriminator(_one_or_many)
]


class ItemsQuery(BaseModel):
    """Which items to list: by text in id or title, by category, page by page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: Annotated[str, Field(max_length=LONGEST_ID)] = ""
    category: Annotated[str, Field(max_length=LONGEST_ID)] | None = None
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 50


FIELDS = {name for model in (SlateRequest, FeedbackEvent, FeedbackBatch, ItemsQuery) for name in model.model_fields}
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
class ItemView:
    """An item of the catalogue."""

    id: int | str
    title: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class ItemList:
    """A page of the items found, most liked first, and how many there are in all."""

    total: int
    items: list[ItemView]


@dataclass(frozen=True)
class PolicyView:
    """A policy that can be asked for by name; share: of the users it is assigned to."""

    name: str
    share: float
    has_diversity_knob: bool
    summary: str


@dataclass(frozen=True)
class CatalogView:
    """The catalogue that is served; name: of the data it was trained on; sha256: of its file, if it came from one."""

    items: int
    categories: tuple[str, ...]
    name: str
    dim: int
    sha256: str | None


@dataclass(frozen=True)
class LatencyView:
    """Percentiles of a route's answering time over the last minutes, in milliseconds."""

    route: str
    requests: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class LiveView:
    """The service at this moment; rates are per second over the last minute, of the process that answers."""

    slates_per_second: float
    feedback_per_second: float
    uptime: float
    latency: list[LatencyView]
    policies: list[PolicyResult]
    store: dict[str, int | float | str]
    rebuilt: int


@dataclass(frozen=True)
class Health:
    """Whether the service is there."""

    status: Literal["ok"]
