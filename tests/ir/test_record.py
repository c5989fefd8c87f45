"""Records mean what frozen dataclasses with slots mean."""

import copy
import pickle
from dataclasses import dataclass
from typing import ClassVar

import pytest

from graphc.ir.record import record, replaced


@record
class Place:
    """A place."""

    leaf: ClassVar[bool] = True
    row: int
    name: str = "a"

    def twice(self) -> int:
        return 2 * self.row


@dataclass(frozen=True, slots=True)
class Likewise:
    row: int
    name: str = "a"


@record(eq=False)
class Thing:
    row: int


@record(eq=False, frozen=False)
class Counter:
    count: int = 0


class Derived(Place):  # type: ignore[misc]
    __slots__ = ()


def test_fields() -> None:
    place = Place(1)
    assert (place.row, place.name, place.twice(), Place.leaf) == (1, "a", 2, True)
    assert repr(Place(2, name="b")) == "Place(row=2, name='b')"
    assert Place.__doc__ == "A place." and Place.__match_args__ == ("row", "name")
    with pytest.raises(TypeError, match=r"Place.__init__\(\) missing 1 required"):
        Place()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'col'"):
        Place(1, col=2)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        place.other = 1  # type: ignore[attr-defined]
    assert not hasattr(place, "__dict__")


def test_equality_is_that_of_dataclasses() -> None:
    assert Place(1) == Place(1, "a") != Place(1, "b")
    assert Place(1) != (1, "a") and Place(1) != Likewise(1)
    assert len({Place(1), Place(1, "a"), Place(2)}) == 2
    assert hash(Place(1)) == hash(Likewise(1))
    assert Thing(1) != Thing(1) and len({Thing(1), Thing(1)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Place([]))  # type: ignore[arg-type]


def test_frozen() -> None:
    place, counter = Place(1), Counter()
    for change in (lambda: setattr(place, "row", 2), lambda: delattr(place, "row")):
        with pytest.raises(AttributeError, match="cannot change field 'row' of a Place"):
            change()
    counter.count += 1
    assert place.row == counter.count == 1


def test_copies_and_pickles() -> None:
    for made in (pickle.loads(pickle.dumps(Place(3, "c"))), copy.deepcopy(Place(3, "c"))):
        assert made == Place(3, "c")
    assert replaced(Place(3, "c"), row=4) == Place(4, "c")
    with pytest.raises(TypeError):
        replaced(Place(3), col=4)


def test_a_class_derived_from_a_record() -> None:
    assert Derived(1) == Derived(1) != Place(1)
    assert Derived(1).twice() == 2 and hash(Derived(1)) == hash(Place(1))
    assert type(replaced(Derived(1), row=2)) is Derived
