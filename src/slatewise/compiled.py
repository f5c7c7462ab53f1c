"""Functions on arrays that numba compiles when they are first called.

Importing a module with such kernels does not import numba. The machine code is kept in numba's cache, next to the
module or in the user's cache directory, and read from there the next time; where neither can be written, a kernel is
compiled again in every process. Kernels run without the interpreter lock, and division by zero gives what numpy gives.
"""

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

PATIENCE = 2.0
NOTICE = "slatewise: compiling for this machine; this takes some seconds and happens once"

_one_at_a_time = threading.Lock()


def compiled(function: Function) -> Function:
    """Compile a function when it is first called.

    It takes arrays and numbers by position, and may call other kernels by names that its module defines or imports.
    Pass arrays of one dtype and layout: every other combination of types is compiled on its own.
    """
    return cast(Function, Kernel(cast(FunctionType, function)))


class Kernel:
    """A compiled function; `__wrapped__` is the same in plain Python."""

    options: ClassVar[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}
    __wrapped__: Any

    def __init__(self, function: FunctionType) -> None:
        update_wrapper(self, function)
        self._call: Callable[..., Any] = self.compile_and_call

    def __call__(self, *arguments: Any) -> Any:
        """Call the machine code."""
        return self._call(*arguments)

    def compile_and_call(self, *arguments: Any) -> Any:
        """Compile for the types of these arguments, or read what was compiled before; from then on call numba's."""
        import numba

        types = tuple(map(numba.typeof, arguments))
        with _one_at_a_time, _notice.if_slow():
            dispatcher = self.dispatcher
            try:
                dispatcher.compile(types)
            except OSError:  # the disk is full
                dispatcher = self.uncached
                dispatcher.compile(types)
        self._call = dispatcher
        self._replace(dispatcher)
        return dispatcher(*arguments)

    def _replace(self, dispatcher: Any) -> None:
        """Let the module's name stand for the machine code, so that later calls from there take no detour."""
        module = self.__wrapped__.__globals__
        if module.get(self.__wrapped__.__name__) is self:
            dispatcher.kernel = self
            module[self.__wrapped__.__name__] = dispatcher

    @cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function, with a cache if there is a directory for it."""
        import numba

        try:
            return numba.njit(self._linked("dispatcher"), cache=True, **self.options)
        except RuntimeError:  # no directory can be written
            return self.uncached

    @cached_property
    def uncached(self) -> Any:
        """The same without a cache."""
        import numba

        return numba.njit(self._linked("uncached"), **self.options)

    @cached_property
    def callees(self) -> dict[str, "Kernel"]:
        """The kernels that this one calls, by name."""
        known = self.__wrapped__.__globals__
        names = {name: known.get(name) for name in self.__wrapped__.__code__.co_names}
        kernels = {name: getattr(value, "kernel", value) for name, value in names.items()}
        return {name: kernel for name, kernel in kernels.items() if isinstance(kernel, Kernel)}

    @cached_property
    def files(self) -> set[str]:
        """The source files of this kernel and of all that it calls."""
        return {self.__wrapped__.__code__.co_filename}.union(*(kernel.files for kernel in self.callees.values()))

    def _linked(self, version: str) -> FunctionType:
        """Return the function with numba's version of every kernel it calls, `dispatcher` or `uncached`.

        numba compiles again when the file of a function has changed, but knows nothing of other files; their content
        becomes part of the name in the cache.
        """
        plain = self.__wrapped__
        callees = {name: getattr(kernel, version) for name, kernel in self.callees.items()}
        function = FunctionType(plain.__code__, {**plain.__globals__, **callees}, plain.__name__, plain.__defaults__)
        function.__qualname__ = plain.__qualname__
        others = sorted(self.files - {plain.__code__.co_filename})
        if others:
            content = b"".join(Path(name).read_bytes() for name in others)
            function.__qualname__ += "_" + hashlib.sha256(content).hexdigest()[:12]
        return function


class _Notice:
    """Says on stderr what is going on, once, when compiling has taken longer than PATIENCE in this process."""

    def __init__(self) -> None:
        self.seconds, self.depth, self.started, self.was_given = 0.0, 0, 0.0, False
        self.timer = threading.Timer(PATIENCE, self._give)

    @contextmanager
    def if_slow(self) -> Iterator[None]:
        """Watch the clock whenever numba compiles; reading from the cache does not count."""
        from numba.core import event

        methods = {"on_start": self._begin, "on_end": self._end}
        with event.install_listener("numba:compile", type("Listener", (event.Listener,), methods)()):
            yield

    def _begin(self, _event: object) -> None:
        """Start the clock, unless a kernel is compiled only because another one calls it."""
        if self.depth == 0:
            self.started = time.monotonic()
            self.timer = threading.Timer(max(0.0, PATIENCE - self.seconds), self._give)
            self.timer.daemon = True
            self.timer.start()
        self.depth += 1

    def _end(self, _event: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.timer.cancel()
            self.seconds += time.monotonic() - self.started

    def _give(self) -> None:
        if not self.was_given:
            self.was_given = True
            print(NOTICE, file=sys.stderr, flush=True)


_notice = _Notice()
