"""What is true of every page: well formed, whole, and of itself alone."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from typing import Any

_VOID = frozenset({"meta", "br", "col", "wbr", "input", "img", "link"})


class Page(HTMLParser):
    """A page that was read. Raises AssertionError where elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.controls: list[str] = []
        self.tags: dict[str, int] = {}
        self.outside: list[str] = []
        self.texts: list[str] = []
        self.svg = 0
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        assert len(given) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if "id" in given:
            self.ids.append(given["id"])
        if str(given.get("href", "")).startswith("#"):
            self.links.append(given["href"][1:])
        if "aria-controls" in given:
            self.controls.append(given["aria-controls"])
        for name in ("src", "href", "data", "action", "srcset", "poster"):
            if name in given and not str(given[name]).startswith("#"):
                self.outside.append(f"{tag} {name}={given[name]}")
        self.outside += [f"{tag} {name}" for name in given if name.startswith("on")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All that is to be read."""
        return "".join(self.texts)


def checked(text: str) -> Page:
    """The page, after a look at what all have in common."""
    page = Page(text)
    twice = {key for key in page.ids if page.ids.count(key) > 1}
    assert not twice, f"ids that are there twice: {sorted(twice)[:5]}"
    assert {*page.links, *page.controls} <= {*page.ids}
    assert page.outside == [], "a page asks for nothing"
    assert page.tags.get("h1") == 1 and page.tags.get("main") == 1
    return page


def without_runs(text: str) -> str:
    """The page without what another run gives a little differently."""
    text = re.sub(r'<div class="run-table">.*?</table></div></div>', "", text, flags=re.S)
    return re.sub(r'<data class="run".*?</data>', "", text, flags=re.S)


def long_chain(length: int) -> Any:
    """A function of some `length` operators of which no two stretches are alike: no loop is found
    in it, and each of its products is a kernel. It takes a square."""
    draw = random.Random(0)
    kinds = ("sin", "cos", "tanh", "exp", "sigmoid", "abs")
    names = [draw.choice(kinds) for _ in range(length // 3)]
    products = [draw.random() < 0.7 for _ in names]

    def chain(x: Any) -> Any:
        for i, (name, product) in enumerate(zip(names, products, strict=True)):
            x = getattr(x, name)() + i
            if product:
                x = x @ x
        return x

    return chain
