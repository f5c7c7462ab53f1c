"""The table of routes: everything the API can do, and which scopes may do it."""

from typing import Any

from pydantic import TypeAdapter

from slatewise.recommender.types import (
    EventReceipt,
    ItemDetails,
    MergeReceipt,
    PolicyResult,
    Preview,
    Receipt,
    Slate,
    UserView,
)
from slatewise.service.auth import PUBLIC
from slatewise.service.catalog import (
    list_policies,
    list_trainings,
    list_versions,
    promote_version,
    reload_catalog,
    rollback_version,
    show_catalog,
)
from slatewise.service.events import Events, record_events
from slatewise.service.http import Endpoint
from slatewise.service.items import list_items, patch_item, put_item, put_items, show_item, withdraw_item
from slatewise.service.operations import is_live, is_ready, show_experiments, show_live, show_metrics, switch_experiment
from slatewise.service.rerank import rerank
from slatewise.service.retraining import TrainingRecord
from slatewise.service.schemas import (
    BatchResults,
    CatalogView,
    EventBatchResults,
    ExperimentBody,
    ExportQuery,
    Health,
    ItemBatch,
    ItemBatchResult,
    ItemBody,
    ItemList,
    ItemPatch,
    ItemsQuery,
    LiveView,
    MergeBody,
    PolicyView,
    PromoteBody,
    RerankBody,
    RerankResults,
    SlateBody,
    VersionView,
)
from slatewise.service.slates import Feedback, create_slate, record_feedback
from slatewise.service.users import export_user, forget_user, merge_user, show_user

SERVE, READ, ADMIN = ("serve",), ("read",), ("admin",)
SERVE_OR_READ, ITEMS = ("serve", "read"), ("items", "admin")

SLATE_BODY: TypeAdapter[Any] = TypeAdapter(SlateBody)
FEEDBACK: TypeAdapter[Any] = TypeAdapter(Feedback)
EVENTS: TypeAdapter[Any] = TypeAdapter(Events)
EXPORT_QUERY: TypeAdapter[Any] = TypeAdapter(ExportQuery)
MERGE_BODY: TypeAdapter[Any] = TypeAdapter(MergeBody)
PROMOTE_BODY: TypeAdapter[Any] = TypeAdapter(PromoteBody)
EXPERIMENT_BODY: TypeAdapter[Any] = TypeAdapter(ExperimentBody)
RERANK_BODY: TypeAdapter[Any] = TypeAdapter(RerankBody)
ITEMS_QUERY: TypeAdapter[Any] = TypeAdapter(ItemsQuery)
ITEM_BODY: TypeAdapter[Any] = TypeAdapter(ItemBody)
ITEM_PATCH: TypeAdapter[Any] = TypeAdapter(ItemPatch)
ITEM_BATCH: TypeAdapter[Any] = TypeAdapter(ItemBatch)

ROUTES = (
    Endpoint("POST", "/v1/slates", create_slate, SERVE, {201: Slate, 200: Preview}, body=SLATE_BODY),
    Endpoint("POST", "/v1/feedback", record_feedback, SERVE, {200: Receipt | BatchResults}, body=FEEDBACK),
    Endpoint("POST", "/v1/events", record_events, SERVE, {200: EventReceipt | EventBatchResults}, body=EVENTS),
    Endpoint("POST", "/v1/rerank", rerank, SERVE, {200: RerankResults}, body=RERANK_BODY),
    Endpoint("GET", "/v1/users/{user}", show_user, SERVE_OR_READ, {200: UserView}),
    Endpoint("DELETE", "/v1/users/{user}", forget_user, ADMIN, {204: None}),
    Endpoint("POST", "/v1/users/{user}/merge", merge_user, SERVE, {200: MergeReceipt}, body=MERGE_BODY),
    Endpoint("GET", "/v1/users/{user}/export", export_user, ADMIN, {200: dict[str, Any]}, query=EXPORT_QUERY),
    Endpoint("GET", "/v1/items", list_items, SERVE_OR_READ, {200: ItemList}, query=ITEMS_QUERY),
    Endpoint("POST", "/v1/items", put_items, ITEMS, {200: ItemBatchResult}, body=ITEM_BATCH),
    Endpoint("GET", "/v1/items/{item}", show_item, SERVE_OR_READ, {200: ItemDetails}),
    Endpoint("PUT", "/v1/items/{item}", put_item, ITEMS, {200: ItemDetails}, body=ITEM_BODY),
    Endpoint("PATCH", "/v1/items/{item}", patch_item, ITEMS, {200: ItemDetails}, body=ITEM_PATCH),
    Endpoint("DELETE", "/v1/items/{item}", withdraw_item, ITEMS, {204: None}),
    Endpoint("GET", "/v1/policies", list_policies, SERVE_OR_READ, {200: list[PolicyView]}),
    Endpoint("GET", "/v1/catalog", show_catalog, SERVE_OR_READ, {200: CatalogView}),
    Endpoint("POST", "/v1/catalog/reload", reload_catalog, ADMIN, {200: CatalogView}),
    Endpoint("GET", "/v1/catalog/versions", list_versions, ADMIN, {200: list[VersionView]}),
    Endpoint("POST", "/v1/catalog/promote", promote_version, ADMIN, {200: CatalogView}, body=PROMOTE_BODY),
    Endpoint("POST", "/v1/catalog/rollback", rollback_version, ADMIN, {200: CatalogView}),
    Endpoint("GET", "/v1/catalog/trainings", list_trainings, ADMIN, {200: list[TrainingRecord]}),
    Endpoint("GET", "/v1/experiments", show_experiments, READ, {200: list[PolicyResult]}),
    Endpoint("PATCH", "/v1/experiments", switch_experiment, ADMIN, {200: list[PolicyResult]}, body=EXPERIMENT_BODY),
    Endpoint("GET", "/v1/live", show_live, READ, {200: LiveView}),
    Endpoint("GET", "/health/live", is_live, PUBLIC, {200: Health}),
    Endpoint("GET", "/health/ready", is_ready, PUBLIC, {200: Health}),
    Endpoint("GET", "/metrics", show_metrics, READ, {200: str}),
)
