"""A client of the HTTP service: typed, with retries that count nothing twice.

`Client` is for ordinary code, `AsyncClient` for asyncio; both have the same methods. It needs httpx and nothing else of
slatewise.
"""

try:
    import httpx as _httpx  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the client needs httpx: pip install '.[client]' in the checkout", name="httpx"
    ) from error

from slatewise.client.asynchronous import AsyncClient
from slatewise.client.errors import ClientError, ServiceError, UnreachableError
from slatewise.client.responses import (
    BatchResult,
    EventReceipt,
    Item,
    MergeReceipt,
    Preview,
    Ranked,
    Receipt,
    Slate,
    SlateItem,
    UnmetRule,
)
from slatewise.client.synchronous import Client

__all__ = [
    "AsyncClient",
    "BatchResult",
    "Client",
    "ClientError",
    "EventReceipt",
    "Item",
    "MergeReceipt",
    "Preview",
    "Ranked",
    "Receipt",
    "ServiceError",
    "Slate",
    "SlateItem",
    "UnmetRule",
    "UnreachableError",
]
