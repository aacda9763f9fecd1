"""Methods that are declared once and served by several classes: one that blocks, one that is awaited, and pipelines of keys.

A class of declarations has functions under `operation`, `paged` or `command`. A class that serves them inherits from it and from one that
says how: `class Client(Root, Blocking)`, `class AsyncClient(Root, Awaited)`. When it is made it gets functions of its own, with the names,
parameters and docstrings of the declarations; type checkers learn their types from the overloads of `__get__`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any, Concatenate, Generic, TypeVar, overload

from typing_extensions import ParamSpec

from ._plan import Command, Plan

P = ParamSpec("P")
T = TypeVar("T")
Pages = Generator[Plan[Iterable[T]], Any, None]


class _Declared:
    # What the methods give; `{}` is what stands in the brackets of the declared type.
    gives = {"blocking": "{}", "awaited": "{}", "queued": "None", "made": "Command[{}]"}

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def served(self, owner: type, how: str) -> Any:
        function = self.function
        made: Any = functools.update_wrapper(getattr(self, how)(), function)
        given = self.gives[how].format(function.__annotations__["return"].partition("[")[2][:-1])
        made.__annotations__ = {**function.__annotations__, "return": given}
        made.__signature__ = inspect.signature(function).replace(return_annotation=given)
        made.__module__, made.__qualname__ = owner.__module__, f"{owner.__qualname__}.{function.__name__}"
        return staticmethod(made) if how == "made" else made


class _Serves:
    """A class whose methods are made of the declarations that it inherits."""

    _how = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in dir(cls):
            declared = inspect.getattr_static(cls, name)
            if isinstance(declared, _Declared):
                setattr(cls, name, declared.served(cls, cls._how))


class Blocking(_Serves):
    """Its methods wait for the result."""

    _how = "blocking"


class Awaited(_Serves):
    """Its methods are awaited."""

    _how = "awaited"


class Queued(_Serves):
    """Its methods collect commands."""

    _how = "queued"


class Made(_Serves):
    """Its functions give the commands themselves."""

    _how = "made"


class operation(_Declared, Generic[P, T]):  # noqa: N801
    """An operation over HTTP: a function that gives a plan."""

    def __init__(self, function: Callable[Concatenate[Any, P], Plan[T]]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: Blocking, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Awaited, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, instance: None, owner: type[Awaited]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self  # Only for classes of declarations: those that serve have functions of their own.

    def blocking(self) -> Any:
        plan = self.function

        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._run(plan(self, *args, **kwargs))

        return call

    def awaited(self) -> Any:
        plan = self.function

        async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await self._run(plan(self, *args, **kwargs))

        return call


class paged(_Declared, Generic[P, T]):  # noqa: N801
    """An operation over HTTP whose results come page by page: a generator of plans, each of which gives a page and is sent it."""

    gives = {"blocking": "Iterator[{}]", "awaited": "AsyncIterator[{}]"}

    def __init__(self, function: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: Blocking, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Awaited, owner: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, instance: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], Iterator[T]]: ...
    @overload
    def __get__(self, instance: None, owner: type[Awaited]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self

    def blocking(self) -> Any:
        pages = self.function

        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            made, page = pages(self, *args, **kwargs), None
            while (plan := _next(made, page)) is not None:
                page = self._run(plan)
                yield from page

        return call

    def awaited(self) -> Any:
        pages = self.function

        async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            made, page = pages(self, *args, **kwargs), None
            while (plan := _next(made, page)) is not None:
                page = await self._run(plan)
                for one in page:
                    yield one

        return call


def _next(made: Pages[Any], page: Any) -> Plan[Any] | None:
    try:
        return made.send(page)
    except StopIteration:
        return None


class command(_Declared, Generic[P, T]):  # noqa: N801
    """An operation on keys: a function, without `self`, that gives a command."""

    def __init__(self, function: Callable[P, Command[T]]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: Blocking, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Awaited, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: Queued, owner: Any = None) -> Callable[P, None]: ...
    @overload
    def __get__(self, instance: None, owner: type[Made]) -> Callable[P, Command[T]]: ...
    @overload
    def __get__(self, instance: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, instance: None, owner: type[Awaited]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: None, owner: type[Queued]) -> Callable[Concatenate[Any, P], None]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self

    def served(self, owner: type, how: str) -> Any:
        made = super().served(owner, how)
        if how != "made":
            own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            made.__signature__ = made.__signature__.replace(parameters=[own, *made.__signature__.parameters.values()])
        return made

    def blocking(self) -> Any:
        make = self.function

        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self.execute(make(*args, **kwargs))

        return call

    def awaited(self) -> Any:
        make = self.function

        async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await self.execute(make(*args, **kwargs))

        return call

    def queued(self) -> Any:
        make = self.function

        def call(self: Any, /, *args: Any, **kwargs: Any) -> None:
            self.commands.append(make(*args, **kwargs))

        return call

    def made(self) -> Any:
        make = self.function

        def call(*args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        return call
