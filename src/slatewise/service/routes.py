"""The table of routes: everything the API can do, and who may do it."""

from typing import Any

from slatewise.recommender.views import PersonView, PolicyResult, Receipt, Slate
from slatewise.service import catalogue, operations, people, serving
from slatewise.service.access import PUBLIC
from slatewise.service.models import BatchResults, CatalogView, Health, ItemList, LiveView, PolicyView
from slatewise.service.scoped import Entry

SERVE, READ, ADMIN = ("serve",), ("read",), ("admin",)
SERVE_OR_READ = ("serve", "read")

ROUTES = (
    Entry("POST", "/v1/slates", serving.make_slate, SERVE, {201: Slate, 200: Slate}),
    Entry("POST", "/v1/feedback", serving.take_feedback, SERVE, {200: Receipt | BatchResults}),
    Entry("GET", "/v1/users/{user}", people.show_user, SERVE_OR_READ, {200: PersonView}),
    Entry("DELETE", "/v1/users/{user}", people.forget_user, ADMIN, {204: None}),
    Entry("GET", "/v1/users/{user}/export", people.export_user, ADMIN, {200: dict[str, Any]}),
    Entry("GET", "/v1/items", catalogue.list_items, SERVE_OR_READ, {200: ItemList}),
    Entry("GET", "/v1/policies", catalogue.list_policies, SERVE_OR_READ, {200: list[PolicyView]}),
    Entry("GET", "/v1/catalog", catalogue.show_catalog, SERVE_OR_READ, {200: CatalogView}),
    Entry("POST", "/v1/catalog/reload", catalogue.reload_catalog, ADMIN, {200: CatalogView}),
    Entry("GET", "/v1/experiments", operations.show_experiments, READ, {200: list[PolicyResult]}),
    Entry("GET", "/v1/live", operations.show_live, READ, {200: LiveView}),
    Entry("GET", "/health/live", operations.is_live, PUBLIC, {200: Health}),
    Entry("GET", "/health/ready", operations.is_ready, PUBLIC, {200: Health}),
    Entry("GET", "/metrics", operations.show_metrics, READ, {200: str}),
)
