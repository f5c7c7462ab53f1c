"""From your own CSV files to a running service: train, serve, request a slate over HTTP, click, request another.

pip install '.[train,serve]' in the checkout, then: python examples/own_csv_to_service.py
"""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

TEAS = ("Assam", "Darjeeling", "Oolong", "Rooibos", "Sencha", "Matcha")
COFFEES = ("Americano", "Cortado", "Espresso", "Lungo", "Mocha", "Ristretto")
SLATEWISE = [sys.executable, "-m", "slatewise"]


def write_tables(folder: Path) -> None:
    """Write the items and who liked what; some customers drink tea, some coffee, and nobody likes everything."""
    items = [(f"tea-{name}", name, "Tea|Hot") for name in TEAS] + [
        (f"cof-{name}", name, "Coffee|Hot") for name in COFFEES
    ]
    likes = [
        (f"customer-{user}", item)
        for user in range(60)
        for number, (item, *_) in enumerate(items)
        if item.startswith("tea" if user % 2 else "cof") and (user + number) % 4
    ]
    (folder / "items.csv").write_text("item_id,title,categories\n" + "".join(f"{','.join(item)}\n" for item in items))
    (folder / "likes.csv").write_text("user_id,item_id\n" + "".join(f"{','.join(like)}\n" for like in likes))


def post(address: str, path: str, body: dict) -> dict:
    """Send JSON to the service and return its response."""
    request = Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=30) as response:  # noqa: S310
        return json.load(response)


def visit(address: str) -> None:
    """Act as a customer: look, click every coffee, look again."""
    request = {"user": "ann", "k": 4, "diversity": 0.1}
    first = post(address, "/v1/slates", request)
    coffees = [item["id"] for item in first["items"] if "Coffee" in item["categories"]]
    post(address, "/v1/feedback", {"slate_id": first["slate_id"], "clicked": coffees})
    second = post(address, "/v1/slates", request)
    for name, slate in (("first slate", first), ("after clicks on coffee", second)):
        print(f"{name}:", ", ".join(f"{item['title']} ({item['probability']:.0%})" for item in slate["items"]))


def main(folder: Path) -> None:
    """Train a catalog, start the service on a free port, visit it, and stop it."""
    write_tables(folder)
    tables = ["--interactions", str(folder / "likes.csv"), "--items", str(folder / "items.csv")]
    subprocess.run([*SLATEWISE, "train", *tables, "--dim", "4", "--out", str(folder / "shop")], check=True)  # noqa: S603
    options = ["--catalog", str(folder / "shop"), "--store", f"sqlite:///{folder}/slates.db", "--port", "0"]
    with (folder / "service.log").open("w") as log:
        service = subprocess.Popen([*SLATEWISE, "serve", *options], stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603
    try:
        visit(next(word for word in service.stdout.readline().split() if word.startswith("http")))
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=30)
    print("the service stopped with code", service.returncode)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
