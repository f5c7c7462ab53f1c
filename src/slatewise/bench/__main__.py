"""`python -m slatewise.bench GROUP`: measure one group in this process and print one JSON document."""

import json
import sys
from importlib import import_module
from typing import Any

from slatewise.bench.measure import MissingError


def measure(group: str) -> dict[str, Any]:
    """Run a group; what it lacks on this machine is an answer, not a failure."""
    try:
        return {"figures": import_module(f"slatewise.bench.{group}").run()}
    except ModuleNotFoundError as error:
        return {"missing": f"{error.name} is not installed; pip install 'slatewise[train,bench]'"}
    except MissingError as error:
        return {"missing": str(error)}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
