"""Things whose contents no attribute shows: arrays, buffers, iterators, weak references."""

TEXT = """
== enum
T class Mode$(enum.Enum):
T     A = 1
T     B = 2
S H = Mode$.A
B acc = acc + 1 if @H is Mode$.A else acc * @H.value
C @H = Mode$.B
C @H = Mode$.A

== enum_argument
T class Kind$(enum.@{Enum||IntEnum||Flag}@):
T     A = 1
T     B = 2
A kind$ = Kind$.A || Kind$.B
B acc = acc * kind$.value if kind$ == Kind$.A else acc - len(kind$.name)

== array_module
S H = array.array("@{d||f||i}@", [1, 2])
B acc = acc * @H[0] + len(@H)
C @H[0] = 5
C @H.append(3)

== array_module_write
S H = array.array("d", [0.0])
B @H[0] += 1
B acc = acc * @H[0]
C @H[0] = 4.0

== bytearray
S H = bytearray(b"ab")
B acc = acc * @H[0] + len(@H)
C @H[0] = 3
C @H.append(1)

== bytearray_write
S H = bytearray(2)
B @H[0] = (@H[0] + 1) % 200
B acc = acc + @H[0]
C @H[0] = 9

== memoryview
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B acc = acc + view$[0]
C raw$[0] = 1

== ctypes
T number$ = ctypes.c_@{double||int}@(2)
B acc = acc * number$.value
C number$.value = 5

== ctypes_write
T number$ = ctypes.c_int(0)
B number$.value += 1
B acc = acc * number$.value
C number$.value = 7

== bytes
A b$ = b"ab" || b"abc" || b""
B acc = acc + len(b$) + sum(b$)

== numpy_small
S H = np.array([1.0, 2.0, 3.0], dtype="f")
B acc = acc + torch.from_numpy(@H)
C @H[0] = 7
C @H = np.ones(3, "f")

== numpy_element
S H = np.array([1.0, 2.0])
B acc = acc * float(@H[0]) + @H.shape[0]
C @H[0] = 4
C @H = np.array([3.0])

== numpy_write
S H = np.zeros(2)
B @H[0] += 1
B acc = acc * float(@H[0])
C @H[0] = 5

== numpy_large
T large$ = np.zeros(300000, "f")
B acc = acc + float(large$[7])
C large$[7] += 3

== numpy_large_write
T large$ = np.zeros(300000, "f")
B large$[5] += 1
B acc = acc + float(large$[5])
C large$[5] = 40

== numpy_object
T objects$ = np.array([1.0, None], dtype=object)
B acc = acc * objects$[0]
C objects$[0] = 5.0

== numpy_object_write
T objects$ = np.array([0, None], dtype=object)
B objects$[0] += 1
B objects$[1] = acc
B acc = acc * objects$[0]
C objects$[0] = 3

== numpy_argument
T held$ = np.ones(3, "f")
A a$ = np.ones(3, "f") || np.zeros(3, "f") || held$
B acc = acc + torch.as_tensor(a$)
C held$[1] += 2

== numpy_scalar
A n$ = np.float32(1.5) || np.int64(2) || np.float64(0.5) || np.float32(2.5)
B acc = acc * n$

== list_iterator
T source$ = iter([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20])
B acc = acc + next(source$)
C next(source$)

== count_iterator
T count$ = itertools.count()
B acc = acc + next(count$)
C next(count$)

== cycle_iterator
T cycle$ = itertools.cycle([1.0, 2.0, 3.0])
B acc = acc * next(cycle$)
C next(cycle$)

== generator_state
T def numbers$():
T     n = 0
T     while True:
T         n += 1
T         yield n
T stream$ = numbers$()
B acc = acc * next(stream$)
C stream$ = numbers$()
C next(stream$)

== generator_send
T def average$():
T     total = 0
T     while True:
T         total = total * 0.5 + (yield total)
T average$_run = average$()
T next(average$_run)
B acc = acc + average$_run.send(acc)
C average$_run.send(row(1))

== iterator_argument
A it$ = iter([1, 2]) || iter([3]) || (k for k in (1, 2)) || iter({"a": 1}.values())
B for value in it$:
B     acc = acc + value

== weakref
T class Target$:
T     k = 2.0
T target$ = Target$()
T weak$ = weakref.ref(target$)
B acc = acc * (weak$().k if weak$() is not None else 100)
C target$.k = 5.0
C target$ = None

== weak_dictionary
T class Key$:
T     pass
T key$ = Key$()
T table$ = weakref.WeakKeyDictionary()
T table$[key$] = 2.0
B acc = acc * len(table$) + table$.get(key$, 0.5)
C table$[key$] = 4.0
C key$ = Key$()

== range_state
S H = range(3)
B for i in @H:
B     acc = acc + i
C @H = range(1)
C @H = range(1, 6, 2)

== range_argument
A r$ = range(2) || range(4) || range(0) || range(1, 3)
B acc = acc + sum(r$) + len(r$)

== path
A p$ = pathlib.Path("a/b") || pathlib.Path("a") || pathlib.Path("c/d.e")
B acc = acc + len(p$.name) + (p$.suffix == ".e")

== fraction
S H = fractions.Fraction(1, 2)
B acc = acc * float(@H)
C @H = fractions.Fraction(3, 2)
C @H += 1

== fraction_count
S H = fractions.Fraction(0)
B @H += fractions.Fraction(1, 2)
B acc = acc * float(@H)
C @H = fractions.Fraction(1)

== decimal
S H = decimal.Decimal("0.5")
B acc = acc * float(@H) + (@H > 1)
C @H = decimal.Decimal("1.5")

== datetime
S H = datetime.date(2020, 1, 2)
B acc = acc + @H.day
C @H += datetime.timedelta(days=1)

== nested_containers
S H = {"a": [1, {"b": (2, 3.0)}]}
B acc = acc * @H["a"][1]["b"][0] + @H["a"][0]
C @H["a"][1]["b"] = (5, 1.0)
C @H["a"][0] = 4
C @H["a"] = [0, {"b": (1,)}]

== dict_subclass
T class Record$(dict):
T     def __getattr__(self, name):
T         return self[name]
T     def __setattr__(self, name, value):
T         self[name] = value
S H = Record$(n=1)
B @H.n += 1
B acc = acc * @H.n
C @H.n = 6

== list_subclass
T class Stack$(list):
T     def push(self, value):
T         self.append(value)
T         return len(self)
S H = Stack$()
B acc = acc * @H.push(1.0)
C @H.clear()

== mutable_mapping
T class Own$(collections.abc.MutableMapping):
T     def __init__(self):
T         self.d = {}
T     def __getitem__(self, k):
T         return self.d[k]
T     def __setitem__(self, k, v):
T         self.d[k] = v
T     def __delitem__(self, k):
T         del self.d[k]
T     def __iter__(self):
T         return iter(self.d)
T     def __len__(self):
T         return len(self.d)
T own$ = Own$()
B own$["n"] = own$.get("n", 0) + 1
B acc = acc * own$["n"] + len(own$)
C own$["n"] = 4
C own$["z"] = 4

== container_truth
S H = [] || {} || () || "" || collections.deque()
B acc = acc + 1 if @H else acc * 2
C @H = [1]
C @H = {}
C @H = "a"

== container_with_itself
T ring$ = [1.0]
T ring$.append(ring$)
B acc = acc * ring$[1][0]
C ring$[0] = 3.0

== shared_container
T shared$ = [1.0]
T left$, right$ = {"s": shared$}, {"s": shared$}
B left$["s"].append(2.0)
B acc = acc + len(right$["s"])
C right$["s"] = [1.0]

== heap
T import heapq
S H = [5, 3, 8]
B heapq.heappush(@H, len(@H))
B acc = acc + @H[0]
C @H.append(-1)
"""
