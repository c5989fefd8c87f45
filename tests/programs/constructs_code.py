"""Control flow, decorators, iteration and context managers."""

TEXT = """
== lru_cache
T calls$ = []
T @functools.@{lru_cache(maxsize=8)||cache}@
T def slow$(n):
T     calls$.append(n)
T     return n * 2.0
A n$ = 1 || 2 || 3
B acc = acc * slow$(n$)
C slow$.cache_clear()

== lru_cache_tensor
T @functools.lru_cache
T def table$(n):
T     return torch.arange(n) * 1.0
B acc = acc + table$(3)
C table$.cache_clear()
C table$(3).add_(1)

== partial
T def three$(a, b, k=1.0):
T     return a * b + k
T part$ = functools.partial(three$, 2.0, k=3.0)
B acc = part$(acc)
C part$.keywords["k"] = 5.0
C part$ = functools.partial(three$, row(1))

== partialmethod
T class Part$:
T     n = 1.0
T     def f(self, k, v):
T         return v * k + self.n
T     g = functools.partialmethod(f, 2.0)
T partial$ = Part$()
B acc = partial$.g(acc)
C partial$.n = 4.0
C Part$.g = functools.partialmethod(Part$.f, 3.0)

== singledispatch
T @functools.singledispatch
T def kind$(v):
T     return 1.0
T @kind$.register
T def _(v: int):
T     return v * 2.0
A n$ = 1 || 2 || 2.5 || "a" || None
B acc = acc * kind$(n$)
C kind$.register(float, lambda v: 7.0)
C kind$.register(str, lambda v: 9.0)

== reduce
T values$ = [1.0, 2.0]
B acc = acc * functools.reduce(lambda a, b: a + b, values$, 0.5)
C values$.append(3.0)

== sorted_key
T items$ = [("a", 2.0), ("b", 1.0)]
T order$ = {"a": 0, "b": 1}
B for name, value in sorted(items$, key=@{lambda i: i[1]||lambda i: order$[i[0]]}@):
B     acc = acc * value + 1
C items$.append(("a", 1.5))
C order$["a"] = 5

== cmp_to_key
T sign$ = 1
T def compare$(a, b):
T     return sign$ * (a - b)
B acc = acc + sorted([1, 3, 2], key=functools.cmp_to_key(compare$))[0]
C sign$ = -1

== map_filter_zip
T values$ = [1.0, 2.0, 3.0]
T least$ = 1.5
B acc = acc + sum(map(lambda v: v * 2, filter(lambda v: v > least$, values$)))
B for a, b in zip(values$, reversed(values$)):
B     acc = acc * a - b
B out.append(any(v > 2 for v in values$))
B out.append(all(values$))
C values$[0] = 0.0
C values$.append(4.0)
C least$ = 0

== comprehension
T values$ = [1.0, 2.0]
B acc = acc + sum(v * 2 for v in values$ if v) + len({v: 1 for v in values$})
B out.append([acc * v for v in values$])
C values$.append(3.0)
C values$[0] = 0

== own_context_manager
T class Scope$:
T     depth = 0
T     def __enter__(self):
T         Scope$.depth += 1
T         return self
T     def __exit__(self, *error):
T         return False
T scope$ = Scope$()
B with scope$:
B     acc = acc * scope$.depth
C Scope$.depth = 0

== contextlib_manager
T level$ = 0
T @contextlib.contextmanager
T def deeper$(n):
T     global level$
T     level$ += n
T     try:
T         yield level$
T     finally:
T         level$ -= n
A n$ = 1 || 2
B with deeper$(n$) as depth:
B     acc = acc * depth
C level$ = 5

== suppress
T entries$ = {"k": 2.0}
B with contextlib.suppress(KeyError):
B     acc = acc * entries$["k"]
B     acc = acc + entries$["q"]
C entries$["q"] = 3.0
C entries$.clear()

== exit_stack
T closed$ = []
B with contextlib.ExitStack() as stack:
B     stack.callback(closed$.append, len(closed$))
B     acc = acc + len(closed$)
C closed$.clear()

== try_finally
T count$ = 0
A bad$ = False || False || True
B try:
B     if bad$:
B         raise ValueError("bad")
B     acc = acc * 2
B finally:
B     count$ += 1
B acc = acc + count$
C count$ = 10

== try_except_else
T values$ = {"a": 1.0}
A key$ = "a" || "b"
B try:
B     value = values$[key$]
B except KeyError as error:
B     out.append(str(error))
B     value = 3.0
B else:
B     acc = acc + 1
B acc = acc * value
C values$["b"] = 5.0

== raise_sometimes
S H = 0
S K = torch.zeros(3)
A bad$ = False || False || False || True
B @H += 1
B @K.add_(1)
B if bad$:
B     raise @{ValueError("v")||KeyError("k")||RuntimeError("r")||StopIteration()}@
B acc = acc * @H + @K
C @H = 0

== raise_state
T fail$ = False
T log$ = []
B log$.append(acc * 1.0)
B if fail$:
B     raise ValueError("asked")
B acc = acc + len(log$)
C fail$ = not fail$

== raise_caught_tensor
A n$ = 3 || 4
B try:
B     acc = acc + torch.ones(n$)
B except RuntimeError:
B     acc = acc - 1

== own_exception
T class Stop$(Exception):
T     def __init__(self, value):
T         self.value = value
T def search$(v):
T     for k in range(5):
T         if k == limit$:
T             raise Stop$(v * k)
T     return v
T limit$ = 2
B try:
B     acc = search$(acc)
B except Stop$ as stop:
B     acc = stop.value
C limit$ = 3
C limit$ = 9

== early_return
T def early$(v, n):
T     if n > 1:
T         return v * n
T     for k in values$:
T         if k > n:
T             return v + k
T     return v
T values$ = [0, 5]
A n$ = 0 || 1 || 2 || 6
B acc = early$(acc, n$)
C values$.insert(0, 3)

== while_state
S H = 3
B while @H > 0:
B     acc = acc + @H
B     @H -= 1
C @H = 2

== for_else
T values$ = [1, 2]
B for value in values$:
B     if value > 5:
B         break
B     acc = acc + value
B else:
B     acc = acc * 2
C values$.append(9)

== generator_function
T def produce$(v):
T     for k in factors$:
T         yield v * k
T factors$ = [1.0, 2.0]
B for part in produce$(acc):
B     acc = acc + part
C factors$.append(0.5)

== recursion
T def deep$(v, n):
T     return v if n == 0 else deep$(v * factor$, n - 1)
T factor$ = 2.0
A n$ = 0 || 1 || 3
B acc = deep$(acc, n$)
C factor$ = 0.5

== star_arguments
T def many$(*args, **kwargs):
T     return sum(args) + sum(kwargs.values())
T given$ = [1.0, 2.0]
T named$ = {"a": 3.0}
B acc = acc + many$(*given$, **named$)
C given$.append(5.0)
C named$["b"] = 4.0

== walrus_and_ternary
S H = 2
B if (n := @H * 2) > 3:
B     acc = acc * n
B acc = acc + 1 if @H else acc
C @H = 0
C @H = 1

== string_state
S H = "relu"
B acc = getattr(torch, @H)(acc) if @H else acc
C @H = "tanh"
C @H = ""

== is_identity
T token$ = object()
S H = token$
B acc = acc + 1 if @H is token$ else acc * 2
C token$ = object()
C @H = None

== init_subclass_registry
T class Registry$:
T     known = []
T     def __init_subclass__(cls):
T         Registry$.known.append(cls)
T class First$(Registry$):
T     k = 2.0
B acc = acc * sum(kind.k for kind in Registry$.known)
C class Second$(Registry$):
c     k = 3.0
C First$.k = 5.0

== new_object
T class Fresh$:
T     made = 0
T     def __init__(self, v):
T         Fresh$.made += 1
T         self.v, self.id = v, Fresh$.made
S H = None
B @H = Fresh$(acc)
B acc = acc + @H.v * @H.id
C Fresh$.made = 0

== operators_inplace
S H = [1.0]
T class Acc$:
T     total = 0.0
T     def __iadd__(self, v):
T         self.total += v
T         return self
T adder$ = Acc$()
B adder$ += 1.5
B @H += [adder$.total]
B acc = acc * adder$.total + len(@H)
C adder$.total = 0.0

== truth_of_object
T class Truth$:
T     ok = True
T     def __bool__(self):
T         return self.ok
T truth$ = Truth$()
B acc = acc + 1 if truth$ else acc * 2
C truth$.ok = False

== equality_of_object
T class Equal$:
T     k = 1
T     def __eq__(self, other):
T         return self.k == other
T     def __hash__(self):
T         return self.k
T equal$ = Equal$()
B acc = acc + 1 if equal$ == 1 else acc * 2
B out.append(equal$ in {1: 2})
C equal$.k = 2

== object_argument
T class Thing$:
T     def __init__(self, k):
T         self.k = k
T held$ = Thing$(2.0)
A o$ = held$ || Thing$(3.0) || Thing$(row(1))
B acc = acc * o$.k
B o$.k = o$.k + 1
C held$.k = 5.0
C held$.k = row(2)

== function_argument
T def one$(v):
T     return v * 2
A f$ = one$ || torch.tanh || (lambda v: v + 1) || F.relu || torch.nn.ReLU()
B acc = f$(acc)
C one$ = lambda v: v - 1

== inner_compile
T @compile
T def inner$(v):
T     return v * inner$_k
T inner$_k = 2.0
B acc = inner$(acc)
C inner$_k = 3.0
C inner$_k = row(1)
"""
