"""Attributes and names of every kind: looked up, written, computed, missing."""

TEXT = """
== property
T class Prop$:
T     _k = 2.0
T     @property
T     def k(self):
T         return self._k * 2
T     @k.setter
T     def k(self, value):
T         self._k = value
T prop$ = Prop$()
B acc = acc * prop$.k
B prop$.k = prop$._k + 1
C prop$._k = 0.5
C prop$.k = 3
C Prop$.k = property(lambda self: 5.0)

== cached_property
T class Cached$:
T     base = 2.0
T     @functools.cached_property
T     def k(self):
T         return self.base * 2
T     @functools.cached_property
T     def t(self):
T         return row(1) * self.base
T cached$ = Cached$()
B acc = acc * cached$.k + cached$.t
C cached$ = Cached$()
C cached$.k = 9.0
C Cached$.base = 5.0
C cached$.__dict__.pop("t", None)

== slots_attribute
T class Slim$:
T     __slots__ = ("h", "n")
T slim$ = Slim$()
T slim$.h, slim$.n = None, 0
B slim$.n += 1
B slim$.h = acc if slim$.h is None else slim$.h * 0.5 + acc
B acc = acc * slim$.n + slim$.h
C slim$.n = 5
C slim$.h = row(1)

== slots_read
T class Read$:
T     __slots__ = ("k",)
T read$ = Read$()
T read$.k = 2.0
B acc = acc * read$.k
C read$.k = 5.0
C read$.k = row(1)

== getattr_hook
T class Proxy$:
T     def __init__(self):
T         self.inner = {"k": 2.0}
T     def __getattr__(self, name):
T         if name.startswith("__") or name == "inner":
T             raise AttributeError(name)
T         return self.inner[name]
T proxy$ = Proxy$()
B acc = acc * proxy$.k
C proxy$.inner["k"] = 5.0
C proxy$.k = 7.0
C proxy$.inner = {"k": row(1)}

== getattribute_hook
T class Watch$:
T     reads = 0
T     k = 2.0
T     def __getattribute__(self, name):
T         if name == "k":
T             Watch$.reads += 1
T         return object.__getattribute__(self, name)
T watch$ = Watch$()
B acc = acc * watch$.k + Watch$.reads
C watch$.k = 3.0
C Watch$.reads = 0

== setattr_hook
T class Store$:
T     def __setattr__(self, name, value):
T         object.__setattr__(self, name, value * 2)
T kept$ = Store$()
T kept$.h = 1.0
B kept$.h = acc
B acc = acc + kept$.h
C kept$.h = row(1)

== descriptor
T class Desc$:
T     def __init__(self):
T         self.value = 2.0
T     def __get__(self, instance, owner):
T         return self.value
T     def __set__(self, instance, value):
T         self.value = value
T class Has$:
T     k = Desc$()
T has$ = Has$()
B acc = acc * has$.k
B has$.k = has$.k + 1
C has$.k = 0.5
C vars(Has$)["k"].value = 3.0

== class_attribute
T class Base$:
T     k = 2.0
T     n = 0
T class Child$(Base$):
T     pass
T child$ = Child$()
B acc = acc * child$.k + Child$.n
B Base$.n += 1
C Base$.k = 3.0
C Child$.k = 4.0
C child$.k = 5.0
C Base$.n = 10

== class_attribute_shadow
T class Shadow$:
T     n = 0
T shadow$ = Shadow$()
B shadow$.n += 1
B acc = acc * shadow$.n
C if "n" in vars(shadow$):
c     del shadow$.n
C Shadow$.n = 5

== metaclass_attribute
T class Meta$(type):
T     k = 2.0
T     @property
T     def twice(cls):
T         return cls.k * 2
T class Made$(metaclass=Meta$):
T     pass
B acc = acc * Made$.k + Made$.twice
C Meta$.k = 5.0
C Made$.k = 3.0

== tensor_attribute
T w$ = row(1)
T w$.scale = 2.0
B acc = acc + w$ * w$.scale
C w$.scale = 5.0
C w$.scale = row(2)

== tensor_attribute_write
T w$ = row(1)
B w$.count = getattr(w$, "count", 0) + 1
B acc = acc + w$ * w$.count
C w$.count = 10

== parameter_attribute
T p$ = nn.Parameter(torch.ones(3))
T p$.decay = True
B acc = acc + (p$ * 2 if p$.decay else p$)
C p$.decay = False
C p$.decay = True

== argument_attribute
T held$ = row(1)
T held$.k = 2.0
A w$ = held$ || row(2)
B acc = acc + w$ * getattr(w$, "k", 1.0)
C held$.k = 4.0

== hasattr
T class Bare$:
T     pass
T bare$ = Bare$()
B acc = acc + 1 if hasattr(bare$, "k") else acc * 2
C bare$.k = 1
C bare$.__dict__.clear()
C Bare$.k = 2

== getattr_name
T class Named$:
T     a, b = 2.0, 3.0
T named$ = Named$()
A name$ = "a" || "b" || "c"
B acc = acc * getattr(named$, name$, 10.0)
C named$.c = 4.0
C Named$.a = 5.0

== setattr_name
T bag$ = Box()
A name$ = "a" || "b"
B setattr(bag$, name$, acc)
B acc = acc + len(vars(bag$))
C bag$.__dict__.clear()
C bag$.z = 1

== vars_sum
T bag$ = Box()
T bag$.a, bag$.b = 1.0, 2.0
B acc = acc * sum(@{vars(bag$)||bag$.__dict__}@.values())
C bag$.c = 3.0
C bag$.a = 5.0

== dir_length
T bag$ = Box()
B acc = acc + len([n for n in dir(bag$) if not n.startswith("_")])
C bag$.q = 1

== methodcaller
T class Caller$:
T     k = 2.0
T     def scale(self, value):
T         return value * self.k
T caller$ = Caller$()
T call$ = operator.methodcaller("scale", 3.0)
B acc = acc + call$(caller$)
C caller$.k = 5.0
C caller$.scale = lambda value: 100.0

== attrgetter
T bag$ = Box()
T bag$.a, bag$.d = Box(), {"k": 1.0}
T bag$.a.k = 2.0
T get$, item$ = operator.attrgetter("a.k"), operator.itemgetter("k")
B acc = acc * get$(bag$) + item$(bag$.d)
C bag$.a.k = 4.0
C bag$.d["k"] = 5.0

== format_attribute
T bag$ = Box()
T bag$.k = 2
B out.append("{0.k}".format(bag$))
B acc = acc + int("{0.k}".format(bag$))
C bag$.k = 3

== globals_read
T factor$ = 2.0
B acc = acc * globals()["factor$"]
C factor$ = 5.0

== globals_write
T number$ = 0
B globals()["number$"] += 1
B acc = acc * number$
C number$ = 7

== global_late
B try:
B     acc = acc + late$
B except NameError:
B     acc = acc * 2
C late$ = 5.0
C globals().pop("late$", None)

== global_shadows_builtin
B acc = acc + @{max||min||sum}@([1, 2])
C @{max||min||sum}@ = lambda values: 100
C for name in ("max", "min", "sum"):
c     globals().pop(name, None)

== names_only_shared
T t, step, mean = 0, 0, 0
B acc = acc + x.mean() + x.t().sum()
C t = 5
C step, mean = "a", 3
C t, step = row(1), None
"""
