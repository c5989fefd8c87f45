"""Special methods, properties and descriptors that classes get, or lose, between the calls."""

TEXT = """
== getattribute_comes
T class Late$:
T     k = 2.0
T late$ = Late$()
B acc = acc * late$.k
C Late$.__getattribute__ = lambda self, name: 3.0
C del Late$.__getattribute__

== getattr_comes
T class Late$:
T     pass
T late$ = Late$()
B acc = acc * getattr(late$, "k", 2.0) + hasattr(late$, "j")
C Late$.__getattr__ = lambda self, name: 3.0
C del Late$.__getattr__

== getattr_behind_a_property_comes
T class Late$:
T     @property
T     def k(self):
T         raise AttributeError("k")
T late$ = Late$()
B acc = acc * getattr(late$, "k", 2.0)
C Late$.__getattr__ = lambda self, name: 3.0

== getattr_of_a_module_comes
B acc = acc * getattr(aid, "gain$", 2.0) + aid.__dict__["scale"]
C aid.__getattr__ = lambda name: 3.0
C aid.scale = 7.0

== getattr_of_a_metaclass_comes
T class Meta$(type):
T     pass
T class Made$(metaclass=Meta$):
T     pass
B acc = acc * getattr(Made$, "k", 2.0)
C Meta$.__getattr__ = lambda cls, name: 3.0

== descriptor_replaced
T class Desc$:
T     def __get__(self, instance, owner):
T         return 2.0
T     def __set__(self, instance, value):
T         instance.seen = value
T class Has$:
T     k = Desc$()
T has$ = Has$()
B acc = acc * has$.k
B has$.k = acc
B acc = acc + has$.seen
C Desc$.__get__ = lambda self, instance, owner: 3.0
C Desc$.__set__ = lambda self, instance, value: setattr(instance, "seen", value * 2)

== setattr_comes
T class Late$:
T     pass
T late$ = Late$()
B late$.k = acc
C Late$.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 2)

== property_comes
T class Late$:
T     pass
T late$ = Late$()
B late$.k = acc
C Late$.k = property(lambda self: 1, lambda self, value: setattr(self, "n", value))

== property_of_a_module_comes
T class Net$(nn.Module):
T     pass
T net$ = Net$()
B net$.k = 2.0
B acc = acc + 1
C Net$.k = property(lambda self: 1, lambda self, value: vars(self).update(n=value * 2))

== delattr_comes
T class Late$:
T     pass
T late$ = Late$()
T late$.k = 1
B try:
B     del late$.k
B except AttributeError:
B     acc = acc + 1
C late$.k = 2
C late$.k = 2
c Late$.__delattr__ = lambda self, name: object.__setattr__(self, "n", name)

== deleter_comes
T class Late$:
T     pass
T late$ = Late$()
T late$.k = 1
B try:
B     del late$.k
B except AttributeError:
B     acc = acc + 1
C late$.k = 2
C Late$.k = property(None, None, lambda self: setattr(self, "n", 1))

== class_changed_before_a_deletion
T class Plain$:
T     pass
T class Keeps$:
T     def __delattr__(self, name):
T         object.__setattr__(self, name, 5)
T late$ = Plain$()
T late$.k = 1
B try:
B     del late$.k
B except AttributeError:
B     acc = acc + 1
C late$.k = 2
C late$.k = 2
c late$.__class__ = Keeps$

== slot_of_a_class_missing
T class Slim$:
T     __slots__ = ("k",)
T slim$ = Slim$()
B try:
B     del slim$.k
B except AttributeError:
B     acc = acc + 1
C slim$.k = 2

== thread_local_missing
T here$ = threading.local()
B try:
B     del here$.n
B except AttributeError:
B     acc = acc + 1
C here$.n = 6

== enter_replaced
T class Scope$:
T     k = 1.0
T     def __enter__(self):
T         return self.k
T     def __exit__(self, *error):
T         pass
T scope$ = Scope$()
B with scope$ as k$:
B     acc = acc + k$
C Scope$.__enter__ = lambda self: 3.0
C Scope$.k = 7.0

== call_of_a_metaclass_comes
T class Meta$(type):
T     pass
T class Made$(metaclass=Meta$):
T     k = 2.0
B acc = acc * Made$().k
C Meta$.__call__ = lambda cls: types.SimpleNamespace(k=3.0)

== new_comes
T class Made$:
T     k = 2.0
T class Other$:
T     k = 3.0
B acc = acc * Made$().k
C Made$.__new__ = lambda cls: Other$()

== del_comes
T class Made$:
T     k = 2.0
T died$ = []
B acc = acc * Made$().k
C Made$.__del__ = lambda self: died$.append(1)

== missing_member_comes
T class Mode$(enum.Enum):
T     A = 1
B try:
B     acc = acc * Mode$(2).value
B except ValueError:
B     acc = acc + 1
C Mode$._missing_ = classmethod(lambda cls, value: cls.A)

== attribute_of_a_member
T class Mode$(enum.Enum):
T     A = 1
T Mode$.A.scales = [2.0]
B acc = acc * Mode$(1).scales[0]
C Mode$.A.scales[0] = 5.0

== member_map_changed
T class Mode$(enum.Enum):
T     A = 1
T     B = 2
B acc = acc + len(Mode$.__members__)
B for mode in Mode$:
B     acc = acc * mode.value
C Mode$._member_map_["C"] = Mode$.A
C Mode$._member_names_.pop()

== reduce_comes
T class Made$:
T     k = 2.0
T made$ = Made$()
T made$.j = 1.0
B acc = acc * copy.copy(made$).k + hasattr(copy.copy(made$), "j")
C Made$.__reduce__ = lambda self: (Made$, ())

== newargs_come
T class Made$:
T     def __new__(cls, k=2.0):
T         made = object.__new__(cls)
T         made.k = k
T         return made
T     def __getstate__(self):
T         return None
T made$ = Made$()
B acc = acc * copy.copy(made$).k
C Made$.__getnewargs__ = lambda self: (3.0,)

== item_of_a_class_comes
T class Meta$(type):
T     pass
T class Made$(metaclass=Meta$):
T     def __class_getitem__(cls, key):
T         return 2.0
B acc = acc * Made$["k"]
C Made$.__class_getitem__ = classmethod(lambda cls, key: 3.0)
C Meta$.__getitem__ = lambda cls, key: 5.0

== missing_comes
T class Table$(dict):
T     pass
T table$ = Table$()
B try:
B     acc = acc * table$["k"]
B except KeyError:
B     acc = acc + 1
C Table$.__missing__ = lambda self, key: 3.0

== iter_comes
T class Row$:
T     pass
T row$ = Row$()
B try:
B     acc = acc + sum(list(row$))
B except TypeError:
B     acc = acc + 1
C Row$.__getitem__ = lambda self, i: [1, 2][i]
C Row$.__iter__ = lambda self: iter([3, 4])

== truth_comes
T class Some$:
T     pass
T some$ = Some$()
B acc = acc + 1 if some$ else acc - 1
C Some$.__len__ = lambda self: 0
C Some$.__bool__ = lambda self: True

== format_comes
T class Shown$:
T     def __str__(self):
T         return "ab"
T shown$ = Shown$()
B acc = acc + len(f"{shown$}") + len(str(shown$))
C Shown$.__format__ = lambda self, spec: "abc"
C Shown$.__str__ = lambda self: "abcd"
C del Shown$.__str__
c Shown$.__repr__ = lambda self: "abcde"

== instancecheck_comes
T class Meta$(type):
T     pass
T class Base$(metaclass=Meta$):
T     pass
T class Own$:
T     pass
T own$ = Own$()
B acc = acc + 1 if isinstance(own$, Base$) else acc - 1
C Meta$.__instancecheck__ = lambda cls, value: True
C del Meta$.__instancecheck__
C Own$.__class__ = property(lambda self: Base$)

== class_asked_that_changes
T class Base$:
T     pass
T class Own$:
T     pass
T own$ = Own$()
B acc = acc + 1 if isinstance(own$, Base$) else acc - 1
C own$.__class__ = Base$

== type_asked_that_changes
T class Base$:
T     pass
T class Own$:
T     pass
T own$ = Own$()
B acc = acc * (2 if type(own$) is Own$ else 3)
C own$.__class__ = Base$

== class_told_by_the_object
T class Base$:
T     pass
T class Own$:
T     pass
T own$ = Own$()
B acc = acc + 1 if isinstance(own$, Base$) else acc - 1
C Own$.__getattribute__ = lambda self, name: Base$ if name == "__class__" else 5

== instance_registered
T class Shape$(abc.ABC):
T     pass
T class Own$:
T     pass
T own$ = Own$()
B acc = acc + 1 if isinstance(own$, Shape$) else acc - 1
C Shape$.register(Own$)

== class_registered
T class Shape$(abc.ABC):
T     pass
T class Own$:
T     pass
B acc = acc * (2 if issubclass(Own$, Shape$) else 3)
C Shape$.register(Own$)

== tensor_class_that_changes
T class Scaled$(nn.Parameter):
T     @property
T     def half(self):
T         return 0.5
T     def twice(self):
T         return 2.0
T scaled$ = Scaled$(row(1))
B acc = acc * scaled$.half + scaled$.twice()
C Scaled$.half = property(lambda self: 0.25)
C Scaled$.twice = lambda self: 4.0

== every_read_counted
T class Watch$:
T     _reads, k = 0, 2.0
T     def __getattribute__(self, name):
T         Watch$._reads += 1
T         return object.__getattribute__(self, name)
T watch$ = Watch$()
B Watch$._reads = 0
B acc = acc * watch$.k + watch$.k + Watch$._reads
C Watch$.k = 3.0
"""
