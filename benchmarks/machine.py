"""Where figures come from: processor, versions, linear algebra."""

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from slatewise.version import __version__

CPU_INFO, CPU_TIMES = Path("/proc/cpuinfo"), Path("/proc/stat")
STOLEN = 7
"""The place of time that other virtual machines took, among the times of all cores."""
BUSY = 0.7
"""The load average above which figures are not to be trusted."""
PACKAGES = ("numba", "pyversity", "bayesianbandits")


def machine() -> dict[str, str | int]:
    """Describe this machine and the software on it."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "slatewise": __version__,
        **{name: _version(name) for name in PACKAGES},
    }


def load_average() -> float:
    """Return how many processes wanted a core during the last minute."""
    return os.getloadavg()[0]


def stolen_seconds() -> float:
    """Return the seconds, over all cores, in which this machine wanted to run and another virtual machine did."""
    if not CPU_TIMES.exists():
        return 0.0
    return int(CPU_TIMES.read_text().split("\n", 1)[0].split()[1 + STOLEN]) / os.sysconf("SC_CLK_TCK")


def warn_if_busy() -> None:
    """Say on stderr if other processes would distort what is measured."""
    load = load_average()
    if load > BUSY:
        print(f"this machine is busy (load average {load:.1f}): measure again when it is quiet", file=sys.stderr)


def _processor() -> str:
    """Return the model's name as the kernel knows it, or what Python knows."""
    text = CPU_INFO.read_text(errors="replace") if CPU_INFO.exists() else ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1) if match else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
