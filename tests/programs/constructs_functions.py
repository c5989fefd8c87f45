"""Functions and classes: their cells and defaults, and code that is replaced between calls."""

TEXT = """
== default_argument
T def scaled$(value, k=2.0, *, add=1.0):
T     return value * k + add
B acc = scaled$(acc)
C scaled$.__defaults__ = (5.0,)
C scaled$.__kwdefaults__ = {"add": 9.0}
C scaled$.__kwdefaults__["add"] = row(1)

== mutable_default
T def collect$(value, seen=[]):
T     seen.append(value)
T     return sum(seen)
B acc = acc + collect$(1.0)
C collect$.__defaults__[0].clear()

== default_dict_argument
T def memo$(key, value, cache={}):
T     if key not in cache:
T         cache[key] = value * 2
T     return cache[key]
B acc = acc + memo$("a", acc)
C memo$.__defaults__[0].clear()

== function_attribute
T def counted$(value):
T     counted$.calls = getattr(counted$, "calls", 0) + 1
T     return value * counted$.calls
B acc = counted$(acc)
C counted$.calls = 5

== nonlocal_counter
T def counter$():
T     n, last = 0, None
T     def up(value):
T         nonlocal n, last
T         n += 1
T         last = value if last is None else last + value
T         return n, last
T     def reset():
T         nonlocal n
T         n = 10
T     return up, reset
T up$, reset$ = counter$()
B n, last = up$(acc)
B acc = acc * n + last
C reset$()
C up$, reset$ = counter$()

== closure_cell
T def scaler$(k):
T     return lambda value: value * k
T scale$ = scaler$(2.0)
B acc = scale$(acc)
C scale$.__closure__[0].cell_contents = 5.0
C scale$ = scaler$(row(1))

== module_attribute
T aid.scale$ = 2.0
T aid.sub.add$ = 1.0
B acc = acc * aid.scale$ + aid.sub.add$
C aid.scale$ = 3.0
C aid.sub.add$ = row(1)
C aid.sub = types.SimpleNamespace(add$=9.0)

== module_function
T exec("def f$(v):\\n    return v * 2\\ndef g$(v):\\n    return f$(v) + 1", vars(aid))
B acc = aid.g$(acc)
C aid.f$ = lambda v: v * 5
C aid.g$ = lambda v: v - 1

== module_state
T aid.calls$ = 0
B aid.calls$ += 1
B acc = acc * aid.calls$
C aid.calls$ = 5

== import_inside
B import aid as helper
B from aid import sub
B acc = acc * helper.scale + sub.add
C aid.scale = 3.0
C aid.sub.add = 4.0

== import_from_inside
B from aid import scale as s
B from math import pi
B acc = acc * s + pi
C aid.scale = 3.5

== exec_module
T made$ = types.ModuleType("made$")
T exec("k = 2.0\\ndef f(v):\\n    global k\\n    k += 1\\n    return v * k", vars(made$))
B acc = made$.f(acc)
C made$.k = 0.5

== replaced_function
T def first$(v):
T     return v * 2
T def second$(v):
T     return v + 7
B acc = first$(acc)
C first$ = second$
C first$.__code__ = second$.__code__
C first$ = lambda v: v - 1

== replaced_method
T class Has$:
T     def f(self, v):
T         return v * 2
T     @staticmethod
T     def s(v):
T         return v + 1
T     @classmethod
T     def c(cls, v):
T         return v - 3
T has$ = Has$()
B acc = has$.f(acc) + Has$.s(acc) + has$.c(acc)
C Has$.f = lambda self, v: v * 5
C has$.f = lambda v: v * 7
C Has$.s = staticmethod(lambda v: v * 3)
C Has$.c = classmethod(lambda cls, v: v * 4)
C Has$.f.__code__ = (lambda self, v: v + 20).__code__

== a_forward_in_the_dict_itself
T layer$ = nn.Tanh()
B acc = acc + layer$(acc)
C layer$.__dict__["forward"] = lambda x: x * 3
C layer$.__dict__.pop("forward", None)

== replaced_class
T class One$:
T     def f(self, v):
T         return v * 2
T class Two$:
T     def f(self, v):
T         return v + 5
T object$ = One$()
B acc = object$.f(acc)
C object$.__class__ = Two$
C object$.__class__ = One$

== class_made_inside
T class One$:
T     def f(self, v):
T         return v * 2
B acc = One$().f(acc)
C One$.f = lambda self, v: v * 9
C class One$:
c     def f(self, v):
c         return v + 100

== replaced_base
T class Root$:
T     def k(self):
T         return 2.0
T class Leaf$(Root$):
T     def k(self):
T         return super().k() + 1
T leaf$ = Leaf$()
B acc = acc * leaf$.k()
C Root$.k = lambda self: 5.0
C Leaf$.k = lambda self: 6.0

== replaced_operator
T class Num$:
T     def __init__(self, v):
T         self.v = v
T     def __add__(self, other):
T         return Num$(self.v + other)
T     def __len__(self):
T         return 2
T     def __call__(self, v):
T         return v * self.v
T num$ = Num$(2.0)
B acc = acc * (num$ + 1.0).v + len(num$) + num$(acc)
C Num$.__add__ = lambda self, other: Num$(9.0)
C Num$.__len__ = lambda self: 4
C Num$.__call__ = lambda self, v: v - 1
C num$.v = 3.0

== replaced_library
B acc = F.relu(acc) + F.softplus(acc)
C F.relu = lambda v: v * 3
C F.softplus = lambda v: v - 1

== replaced_torch
B acc = acc + torch.tanh(acc)
C torch.tanh = lambda v: v * 3

== replaced_linear
T lin$ = nn.Linear(3, 3)
T torch.nn.init.constant_(lin$.weight, 0.5)
B acc = lin$(acc)
C nn.Linear.forward = lambda self, v: v * 3
C lin$.forward = lambda v: v + 1

== replaced_library_class
B acc = nn.@{ReLU||Tanh||Identity}@()(acc)
C nn.@{ReLU||Tanh}@.forward = lambda self, v: v * 3

== lambda_list
T steps$ = [lambda v: v * 2, lambda v: v + 1]
B for step in steps$:
B     acc = step(acc)
C steps$.append(lambda v: v - 5)
C steps$.reverse()
C steps$[0] = torch.tanh

== dispatch_dict
T table$ = {"a": lambda v: v * 2, "b": torch.tanh}
A key$ = "a" || "b" || "c"
B acc = table$.get(key$, torch.neg)(acc)
C table$["c"] = lambda v: v * 3
C table$["a"] = lambda v: v + 3

== own_decorator
T def doubled$(function):
T     @functools.wraps(function)
T     def inner(*args, **kwargs):
T         inner.calls += 1
T         return function(*args, **kwargs) * 2
T     inner.calls = 0
T     return inner
T @doubled$
T def base$(v):
T     return v + 1
B acc = base$(acc) + base$.calls
C base$.calls = 10
C base$ = base$.__wrapped__ if hasattr(base$, "__wrapped__") else base$
C base$.calls = 3
"""
