"""The sites of rewritten code: each asks the observer of the running recording.

Where no recording runs (any more), a site does what Python does.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from ...frontend import texts
from ...frontend.pending import PendingItem
from . import attributes, calls, items, operators
from .instrument import Where
from .kinds import Kind, is_standard, kind_of
from .observer import Observer, running
from .places import MISSING
from .sites import transparent


class Site:
    """One event of a code object."""

    __slots__ = ("detail", "namespace", "plain", "where")
    kind = ""

    def __init__(self, detail: Any, where: Where, namespace: dict[str, Any]) -> None:
        self.detail, self.where, self.namespace = detail, where, namespace
        self.plain = transparent(self.kind, detail, where, namespace)

    def __init_subclass__(cls) -> None:
        calls.SITES[cls.kind] = cls

    def __getitem__(self, operand: Any) -> Any:
        observer = running.observer
        if observer is None or not observer.running:
            return self.plain[operand]
        return self.see(observer, operand)

    def see(self, observer: Observer, operand: Any) -> Any:
        """The operation, recorded."""
        raise NotImplementedError


class Attribute(Site):
    kind = "attribute"

    def see(self, observer: Observer, operand: Any) -> Any:
        if self.detail == "grad" and not str(self.namespace.get("__name__")).startswith("graphc."):
            observer.looked_at_grad = True
        return attributes.attribute(observer, operand, self.detail)


class SuperAttribute(Site):
    kind = "super_attribute"

    def see(self, observer: Observer, operand: Any) -> Any:
        if operand[0] is not super:
            return self.plain[operand]
        return attributes.super_attribute(observer, operand[1], operand[2], self.detail)


class StoreAttribute(Site):
    kind = "store_attribute"

    def see(self, observer: Observer, operand: Any) -> Any:
        attributes.store_attribute(observer, operand[0], self.detail, operand[1])


class DeleteAttribute(Site):
    kind = "delete_attribute"

    def see(self, observer: Observer, operand: Any) -> Any:
        attributes.delete_attribute(observer, operand, self.detail)


class Global(Site):
    kind = "global"

    def see(self, observer: Observer, operand: Any) -> Any:
        if is_standard(self.namespace.get("__name__")):
            return self._of_library(observer, operand)
        value = observer.read(self.namespace, self.detail, self.detail)
        if value is not MISSING:
            return value
        hidden = self.namespace.get("__builtins__", builtins)
        table = hidden if isinstance(hidden, dict) else vars(hidden)
        value = observer.read(table, self.detail, self.detail)
        return self.plain[operand] if value is MISSING else value


    def _of_library(self, observer: Observer, operand: Any) -> Any:
        """Python's own library relies on its functions, classes and modules."""
        value = self.plain[operand]
        if kind_of(type(value)) in _DEFINED:
            return observer.know(value, self.detail)
        return observer.read(self.namespace, self.detail, self.detail)


_DEFINED = frozenset((Kind.FUNCTION, Kind.CLASS, Kind.MODULE, Kind.BUILTIN))


class StoreGlobal(Site):
    kind = "store_global"

    def see(self, observer: Observer, operand: Any) -> Any:
        observer.save_field(self.namespace, self.detail, self.detail)
        self.namespace[self.detail] = operand


class DeleteGlobal(Site):
    kind = "delete_global"

    def see(self, observer: Observer, operand: Any) -> Any:
        observer.open(f"del {self.detail}")
        return self.plain[operand]


class Free(Site):
    kind = "free"

    def see(self, observer: Observer, operand: Any) -> Any:
        if not observer.is_known(operand):
            return self.plain[operand]
        value = observer.read(operand, None, self.detail)
        return self.plain[operand] if value is MISSING else value


class StoreFree(Site):
    kind = "store_free"

    def see(self, observer: Observer, operand: Any) -> Any:
        cell, value = operand
        if observer.is_known(cell):
            observer.save_field(cell, None, self.detail)
        cell.cell_contents = value


class DeleteFree(Site):
    kind = "delete_free"

    def see(self, observer: Observer, operand: Any) -> Any:
        if observer.is_known(operand):
            observer.open(f"del {self.detail}")
        return self.plain[operand]


class Subscript(Site):
    kind = "subscript"

    def see(self, observer: Observer, operand: Any) -> Any:
        return items.subscript(observer, *operand)


class Slice(Site):
    kind = "slice"

    def see(self, observer: Observer, operand: Any) -> Any:
        container, start, stop = operand
        return items.subscript(observer, container, slice(start, stop))


class StoreSubscript(Site):
    kind = "store_subscript"

    def see(self, observer: Observer, operand: Any) -> Any:
        items.store_subscript(observer, *operand)


class StoreSlice(Site):
    kind = "store_slice"

    def see(self, observer: Observer, operand: Any) -> Any:
        container, start, stop, value = operand
        items.store_subscript(observer, container, slice(start, stop), value)


class DeleteSubscript(Site):
    kind = "delete_subscript"

    def see(self, observer: Observer, operand: Any) -> Any:
        items.delete_subscript(observer, *operand)


class Binary(Site):
    kind = "binary"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.binary(observer, operand[0], operand[1], self.detail)


class Unary(Site):
    kind = "unary"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.unary(observer, operand, self.detail)


class Compare(Site):
    kind = "compare"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.compare(observer, operand[0], operand[1], self.detail)


class Identity(Site):
    kind = "identity"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.identity(observer, operand[0], operand[1], self.detail)


class Contains(Site):
    kind = "contains"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.membership(observer, operand[0], operand[1], self.detail)


class Truth(Site):
    kind = "truth"

    def see(self, observer: Observer, operand: Any) -> Any:
        return items.truth(observer, operand)


class Iterate(Site):
    kind = "iterate"

    def see(self, observer: Observer, operand: Any) -> Any:
        if self.detail is not None and type(operand) is types.GeneratorType:
            observer.whole(operand)
            return operand
        return items.iterate(observer, operand)


class Unpack(Site):
    kind = "unpack"

    def see(self, observer: Observer, operand: Any) -> Any:
        return items.unpack(observer, operand)


class Spread(Site):
    kind = "spread"

    def see(self, observer: Observer, operand: Any) -> Any:
        return items.spread(observer, operand, self.detail)


class Format(Site):
    kind = "format"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.formatted(observer, *operand)


class Join(Site):
    kind = "join"

    def see(self, observer: Observer, operand: Any) -> Any:
        return texts.joined(operand) if any(map(texts.is_text, operand)) else "".join(operand)


class Convert(Site):
    kind = "convert"

    def see(self, observer: Observer, operand: Any) -> Any:
        return operators.converted(observer, operand, self.detail)


class Call(Site):
    kind = "call"

    def see(self, observer: Observer, operand: Any) -> Any:
        observer.trace.site = self.where
        function, args, kwargs = operand
        return calls.call(observer, function, args, kwargs)


class With(Site):
    kind = "with"

    def see(self, observer: Observer, operand: Any) -> Any:
        exit_method = attributes.special(observer, operand, "__exit__")
        enter = attributes.special(observer, operand, "__enter__")
        return observer.entry(exit_method), observer.invoke(enter)


class Import(Site):
    kind = "import"

    def see(self, observer: Observer, operand: Any) -> Any:
        return calls.imported(observer, self.plain, self.detail, operand, self.namespace)


class ImportFrom(Site):
    kind = "import_from"

    def see(self, observer: Observer, operand: Any) -> Any:
        try:
            return attributes.attribute(observer, operand, self.detail)
        except AttributeError:
            return self.plain[operand]


class Match(Site):
    kind = "match"

    def see(self, observer: Observer, operand: Any) -> Any:
        subject = operand[0]
        if type(subject) is PendingItem:
            observer.open(f"matching what {subject.method}() gives")
        if self.detail == "MATCH_CLASS":
            names = operand[2]
            if isinstance(operand[1], type):
                observer.lookup(operand[1], "__match_args__")
            if observer.is_known(subject) or operand[3] or names:
                observer.whole(subject)
            found = self.plain[operand]
            if found is not None:
                observer.kind(subject)
                for name in (*getattr(operand[1], "__match_args__", ())[: operand[3]], *names):
                    attributes.attribute(observer, subject, name)
            return found
        observer.whole(subject)
        return self.plain[operand]
