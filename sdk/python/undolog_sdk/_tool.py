"""What is known of a decorated function: its name, its arguments, its schema, its undo."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import typing
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ._flow import Flow
from .client import UndoLogClient, _part
from .codec import decode, encode
from .errors import ResultDecodingError, StatusError, UnavailableError
from .placeholders import check_placeholders
from .schema import Definitions, checkable, schema_of
from .signature import canonical_json
from .tier import CompensationDescriptor, ToolTier

logger = logging.getLogger("undolog_sdk")

Approval = Literal["raise", "wait"]
_RECEIVERS = ("self", "cls")


@dataclass
class Options:
    """The decorator's parameters."""

    tier: ToolTier
    compensation: CompensationDescriptor | str | None
    client: UndoLogClient | None
    session_param: str
    name: str | None
    version: str | None
    reason: str | None
    risk_tags: Collection[str]
    estimated_impact: str
    idempotent: bool
    exclude: Collection[str]
    approval: Approval
    approval_timeout: float | None
    step_key: str | Callable[..., str | None] | None
    fail_open: bool
    register: bool


class Bound:
    """One call's arguments."""

    __slots__ = ("arguments", "step_key")

    def __init__(self, arguments: inspect.BoundArguments, step_key: str | None) -> None:
        self.arguments = arguments
        self.step_key = step_key


class ToolSpec:
    """A decorated function."""

    def __init__(self, fn: Callable[..., Any], options: Options) -> None:
        self.options = options
        self.tier = options.tier
        self.fn, self._first, self._preset = _unwrap_partial(fn)
        refuse_frameworks_tools(self.fn)
        refuse_generators(self.fn)
        self.is_async = _is_async(self.fn)
        self.name = options.name or str(getattr(self.fn, "__name__", type(self.fn).__name__))
        self.doc = inspect.getdoc(fn if not isinstance(fn, functools.partial) else self.fn) or ""
        self.signature = inspect.signature(self.fn)
        params = self.signature.parameters
        self.takes_session = options.session_param in params
        self.takes_step_key = "step_key" in params
        self.var_keyword = next((p.name for p in params.values() if p.kind is p.VAR_KEYWORD), None)
        self._skipped = self._skip(params)
        self.names = frozenset(
            n for n in params if n not in self._skipped and n != self.var_keyword
        )
        self.compensation = self._compensation()
        self._hints: dict[str, Any] | None = None
        self._has_warned = False
        self._known: weakref.WeakKeyDictionary[UndoLogClient, set[str]]
        self._known = weakref.WeakKeyDictionary()

    # ------------------------------------------------------------------ one call

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """The call as the function will see it, defaults included."""
        step_key = None
        if not self.takes_step_key and "step_key" in kwargs and self.var_keyword is None:
            step_key = kwargs.pop("step_key")
        if self._first or self._preset:
            args, kwargs = self._first + args, {**self._preset, **kwargs}
        arguments = self.signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        if step_key is None:
            step_key = self._step_key(arguments)
        return Bound(arguments, None if step_key is None else str(step_key))

    def recorded(self, bound: Bound) -> dict[str, Any]:
        """The arguments as JSON."""
        made: dict[str, Any] = {}
        for name, value in bound.arguments.arguments.items():
            if name in self._skipped:
                continue
            if name == self.var_keyword:
                for key, item in value.items():
                    if key in made:
                        raise TypeError(f"{self.name}: {key} is given twice")
                    made[key] = encode(item, key)
            else:
                made[name] = encode(value, name)
        return made

    def replace(self, bound: Bound, approved: Mapping[str, Any]) -> None:
        """Puts what an approver edited in place of what was proposed, as the annotated types."""
        hints = self.hints()
        arguments = bound.arguments.arguments
        extra: dict[str, Any] = {}
        for name, value in approved.items():
            if name in self.names:
                parameter = self.signature.parameters[name]
                hint = hints.get(name, Any)
                if parameter.kind is parameter.VAR_POSITIONAL:
                    arguments[name] = tuple(decode(item, hint) for item in value)
                else:
                    arguments[name] = decode(value, hint)
            elif self.var_keyword is not None:
                extra[name] = decode(value, hints.get(self.var_keyword, Any))
            else:
                raise ValueError(f"the approved arguments name {name}, which {self.name} has not")
        if self.var_keyword is not None:
            arguments[self.var_keyword] = extra

    def result(self, output: Any) -> Any:
        """A stored result as the annotated return type."""
        hint = self.hints().get("return", Any)
        try:
            return decode(output, hint)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ResultDecodingError(
                f"the stored result of {self.name} is no {hint} ({error}); the call was made by a "
                "release that returned another type, and is not made again"
            ) from error

    def warn_of_other_types(self, value: Any, output: Any) -> None:
        """Says once what a replay of this tool would return in place of what it returns itself."""
        if self._has_warned or type(value) is type(output):
            return
        try:
            again = decode(output, self.hints().get("return", Any))
        except (TypeError, ValueError, ArithmeticError):
            again = output
        if type(again) is not type(value):
            self._has_warned = True
            logger.warning(
                "%s returns a %s, but its replay returns a %s: annotate its return type",
                self.name, type(value).__qualname__, type(again).__qualname__,
            )  # fmt: skip

    def hints(self) -> dict[str, Any]:
        """The annotations, resolved on first use: they may name what is defined later."""
        if self._hints is None:
            target = self.fn
            if not inspect.isroutine(target) and not isinstance(target, type):
                target = type(target).__call__
            try:
                self._hints = typing.get_type_hints(target, include_extras=True)
            except (NameError, TypeError, AttributeError) as error:
                logger.warning("%s: its annotations cannot be resolved (%s)", self.name, error)
                self._hints = {}
        return self._hints

    def still_says(self, bound: Bound, canonical: str) -> bool:
        """Whether the arguments are still those that were recorded."""
        try:
            return canonical_json(self.recorded(bound)) == canonical
        except (TypeError, ValueError, RecursionError, RuntimeError):
            return False

    # ------------------------------------------------------------------ registration

    def register(self, client: UndoLogClient, org_id: str) -> Flow[StatusError | None]:
        """Tells the registry about this tool, once per client and organisation.

        A refusal is no obstacle by itself: whoever runs the registry may have decided otherwise,
        and its word holds at the call. It is returned, so that the call's error can name it.
        """
        known = self._known.setdefault(client, set())
        if not self.options.register or org_id in known:
            return None
        refused: StatusError | None = None
        try:
            path = f"/tools/{_part(self.name)}"
            yield from client._put(path, org_id, self.contents())
        except UnavailableError:
            raise
        except StatusError as error:
            refused = error
            logger.warning("the tool %s was not registered: %s", self.name, error)
        known.add(org_id)
        return refused

    def is_registered(self, client: UndoLogClient, org_id: str) -> bool:
        """Whether the registry was told before."""
        return org_id in self._known.get(client, ())

    def forget(self, client: UndoLogClient, org_id: str) -> None:
        """The registry does not know this tool any more."""
        self._known.get(client, set()).discard(org_id)

    def contents(self) -> dict[str, Any]:
        """The tool as the registry has it."""
        options = self.options
        body: dict[str, Any] = {"tier": self.tier.value, "tool_schema": self.schema()}
        if options.version:
            body["tool_version"] = options.version
        if self.tier.requires_approval:
            body["irreversibility_reason"] = self.reason()
        if self.compensation is not None:
            body["compensation_ref"] = self.compensation_name()
        if isinstance(self.compensation, CompensationDescriptor):
            # The registry's template: a call that names other arguments is refused.
            body["compensation_args"] = self.compensation.args
        if options.risk_tags:
            body["risk_tags"] = list(options.risk_tags)
        if options.estimated_impact:
            body["estimated_impact"] = options.estimated_impact
        if options.idempotent:
            body["idempotent"] = True
        return body

    def reason(self) -> str:
        """Why a human has to decide: given, else the docstring's first paragraph."""
        given = (self.options.reason or "").strip()
        first = self.doc.split("\n\n", 1)[0].strip()
        return given or " ".join(first.split()) or f"{self.name} is declared irreversible"

    def compensation_name(self) -> str:
        """The compensation's name in the registry."""
        named = self.compensation
        return named if isinstance(named, str) else named.fn_name if named else ""

    def descriptor(self) -> CompensationDescriptor | None:
        """What a call sends: nothing when only a registered name was given."""
        named = self.compensation
        return named if isinstance(named, CompensationDescriptor) else None

    def schema(self) -> dict[str, Any]:
        """The MCP tool object."""
        hints = self.hints()
        defs = Definitions()
        properties: dict[str, Any] = {}
        required: list[str] = []
        for parameter in self._recorded_parameters():
            made = schema_of(hints.get(parameter.name, Any), defs)
            if parameter.kind is parameter.VAR_POSITIONAL:
                made = {"type": "array", "items": made}
            properties[parameter.name] = made
            if parameter.default is parameter.empty and parameter.kind is not (
                parameter.VAR_POSITIONAL
            ):
                required.append(parameter.name)
        inner: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": self.var_keyword is not None,
        }
        if defs:
            inner["$defs"] = dict(defs)
        tool: dict[str, Any] = {"name": self.name, "inputSchema": checkable(inner)}
        if self.doc:
            tool["description"] = self.doc
        return tool

    # ------------------------------------------------------------------ at decoration

    def _recorded_parameters(self) -> Iterator[inspect.Parameter]:
        for parameter in self.signature.parameters.values():
            if parameter.name in self.names:
                yield parameter

    def _skip(self, params: Mapping[str, inspect.Parameter]) -> frozenset[str]:
        skipped = {self.options.session_param, *self.options.exclude}
        first = next(iter(params), None)
        if first in _RECEIVERS:
            skipped.add(first)
        return frozenset(skipped)

    def _compensation(self) -> CompensationDescriptor | str | None:
        named = self.options.compensation
        if self.tier.is_compensable and not named:
            raise ValueError(f"the compensable tool {self.name} needs a compensation")
        if named is None:
            return None
        if not self.tier.is_compensable:
            warnings.warn(
                f"{self.name} is {self.tier.value}, so its compensation is never called",
                stacklevel=5,
            )
            return None
        if isinstance(named, CompensationDescriptor):
            check_placeholders(named.args, self.names, takes_any=self.var_keyword is not None)
            return dataclasses.replace(named, args=dict(named.args))
        if not isinstance(named, str):
            raise TypeError("compensation is a CompensationDescriptor or a registered name")
        return named

    def _step_key(self, arguments: inspect.BoundArguments) -> Any:
        how = self.options.step_key
        if how is None:
            return None
        if isinstance(how, str):
            return arguments.arguments.get(how)
        return how(*arguments.args, **arguments.kwargs)


# What frameworks make of a function: (top module, class name).
_FRAMEWORK_TOOLS = frozenset(
    {
        ("langchain_core", "BaseTool"),
        ("agents", "FunctionTool"),
        ("pydantic_ai", "Tool"),
        ("llama_index", "BaseTool"),
        ("crewai", "BaseTool"),
    }
)


def refuse_frameworks_tools(fn: Any) -> None:
    """A framework's own object hides the function whose calls are to be recorded."""
    names = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(fn).__mro__}
    if names & _FRAMEWORK_TOOLS or not callable(fn):
        raise TypeError(
            f"@undolog_tool decorates a function, and this is a {type(fn).__name__}: put it below "
            "the framework's own decorator, directly above the function"
        )


def refuse_generators(fn: Callable[..., Any]) -> None:
    """A generator's effects happen while it is read, so it has no one outcome to record."""
    call = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        name = getattr(fn, "__name__", type(fn).__name__)
        raise TypeError(
            f"{name} is a generator: it acts while it is read, so its outcome cannot be recorded. "
            "Return a list, or decorate the function that does one step"
        )


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004
    )


def _unwrap_partial(
    fn: Callable[..., Any],
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    first: tuple[Any, ...] = ()
    preset: dict[str, Any] = {}
    while isinstance(fn, functools.partial):
        first = fn.args + first
        preset = {**fn.keywords, **preset}
        fn = fn.func
    return fn, first, preset
