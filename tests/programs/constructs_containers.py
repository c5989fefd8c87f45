"""Lists, dicts, tuples, sets and their kin, as state and as arguments."""

TEXT = """
== list_append
S H = []
B @H.append(acc * 2)
B acc = acc + @H[0] * len(@H)
C @H.clear()
C @H.append(row(1))
C @H.insert(0, row(2))

== list_numbers
S H = [1, 2.5]
B acc = acc * @H[0] + @H[-1] + len(@H)
C @H.append(4)
C @H[0] = @{3||0.5||True}@
C @H.pop() if len(@H) > 1 else None
C @H.sort()
C @H[:] = [7, 8, 9]

== list_pop
S H = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
B acc = acc + @H.pop()
C @H.extend([10.0, 20.0])

== list_slice_write
S H = [1, 2, 3]
B @H[1:] = [@H[0] + 1]
B acc = acc * sum(@H)
C @H[:] = [4, 5, 6]

== list_delete
S H = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
B del @H[0]
B acc = acc + @H[0]
C @H.append(1)

== list_bound_append
T log$ = []
T append$ = log$.append
B append$(len(log$))
B append$(acc * 2)
B acc = acc + log$[-1]
C log$.clear()

== list_argument
A values$ = [1, 2] || [1.5, 2] || [row(1), row(2)] || [] || [3]
B for value in values$:
B     acc = acc + value
B values$.append(7)

== list_held_argument
T held$ = [1, row(1)]
A values$ = held$ || [2, row(2)]
B acc = acc * values$[0] + values$[1]
B values$[0] += 1
C held$[0] = 10
C held$[1] = row(5)

== dict_items
S H = {"a": 1, "b": 2.0}
B for key, value in @H.items():
B     acc = acc + value if key != "c" else acc * value
C @H["c"] = 3
C @H["a"] = @{5||row(1)}@
C @H.pop("b", None)
C @H = dict(reversed(list(@H.items())))

== dict_count
S H = {}
B @H["n"] = @H.get("n", 0) + 1
B acc = acc * @H["n"]
C @H.clear()
C @H["n"] = 5

== dict_setdefault
S H = {}
B acc = acc + @H.setdefault("k", acc * 2)
C @H.pop("k", None)
C @H["k"] = row(3)

== dict_update
S H = {"a": 0}
B @H.update(a=@H["a"] + 1, b=acc)
B acc = acc + @H["a"]
C @H.update(a=3)

== dict_views
S H = {"a": 1.0, "b": 2.0}
B acc = acc + sum(@H.values()) + len(@H.keys())
B out.append(list(@H.items()))
C @H["c"] = 4.0
C @H["a"] = 8.0

== dict_view_held
T table$ = {"a": 1.0, "b": 2.0}
T values$ = table$.values()
T keys$ = table$.keys()
B acc = acc + sum(values$)
B if "z" in keys$:
B     acc = acc * 2
C table$["z"] = 4.0
C table$["a"] = 8.0
C table$.pop("z", None)

== dict_argument
A given$ = {"a": row(1)} || {"a": row(1), "b": 2} || {"b": 2, "a": row(2)} || {}
B acc = acc + given$.get("a", 0) * given$.get("b", 1)
B given$["y"] = acc

== dict_in
S H = {"a": None}
B acc = acc + 1 if "b" in @H else acc - 1
C @H["b"] = None
C @H.pop("b", None)

== dict_order
S H = {"a": 2.0, "b": 3.0}
B for value in @H.values():
B     acc = acc * value + 1
C @H["a"] = @H.pop("a")

== dict_of_int_keys
S H = {1: 2.0, 2: 4.0}
A n$ = 1 || 2 || 1.0 || True
B acc = acc * @H[n$]
C @H[1] = 8.0

== tuple_state
S H = (1, 2.0)
B @H = (@H[0] + 1, *@H[1:])
B acc = acc * @H[0] + @H[1]
C @H = (5, 6.0)
C @H = (1, row(2))

== set_numbers
S H = {1, 2}
B @H.add(len(@H) + 1)
B acc = acc + sum(@H)
C @H.discard(1)
C @H.add(50)
C @H.clear()

== set_in
S H = {"a"} || frozenset(("a",))
B acc = acc + 1 if "b" in @H else acc * 2
C @H = {"b"}
C @H = frozenset()

== set_argument
A s$ = {1, 2} || {3} || frozenset((1,)) || set()
B acc = acc + len(s$) + (1 in s$)

== set_of_tensors
T t$ = row(1)
S H = set()
B @H.add(t$)
B acc = acc + sum(@H)
C t$ = row(2)
C @H.clear()

== deque_window
S H = collections.deque(maxlen=3)
B @H.append(acc * 2)
B acc = acc + @H[0] * len(@H)
C @H.clear()
C @H.append(torch.ones(3))
C @H.appendleft(row(1))

== deque_numbers
S H = collections.deque([1.0, 2.0])
B acc = acc * @H[0] + len(@H)
C @H.rotate()
C @H.append(3.0)
C @H[0] = 5.0

== deque_popleft
S H = collections.deque([1, 2, 3, 4, 5, 6, 7, 8, 9])
B acc = acc + @H.popleft()
C @H.extend([1, 2])

== defaultdict
S H = collections.defaultdict(int) || collections.defaultdict(float)
B @H["n"] += 1
B acc = acc * @H["n"] + @H["missing"]
C @H["missing"] = 4
C @H.clear()

== defaultdict_list
S H = collections.defaultdict(list)
B @H["t"].append(acc)
B acc = acc + @H["t"][0] + len(@H["t"])
C @H.clear()
C @H["t"].append(row(1))

== ordered_dict
S H = collections.OrderedDict(a=1.0, b=2.0)
B for key in @H:
B     acc = acc * @H[key] + 1
C @H.move_to_end("a")
C @H["c"] = 0.5

== ordered_dict_write
S H = collections.OrderedDict(a=1.0, b=2.0)
B @H.move_to_end(next(iter(@H)))
B acc = acc * next(iter(@H.values()))
C @H["a"] = 3.0

== counter_container
S H = collections.Counter()
B @H["k"] += 1
B @H.update(["j"])
B acc = acc * @H["k"] + @H["none"]
C @H["k"] = 7
C @H.clear()

== user_dict
S H = collections.UserDict(a=1.0)
B acc = acc * @H["a"] + len(@H)
C @H["a"] = 4.0
C @H["b"] = 1.0

== user_dict_write
S H = collections.UserDict(n=0)
B @H["n"] += 1
B @H["t"] = acc
B acc = acc * @H["n"]
C @H["n"] = 5

== user_list
S H = collections.UserList([1.0, 2.0])
B acc = acc * @H[0] + len(@H)
C @H.append(3.0)
C @H[0] = 4.0

== chain_map
T low$, high$ = {"a": 1.0, "b": 2.0}, {}
T chain$ = collections.ChainMap(high$, low$)
B acc = acc * chain$["a"] + chain$["b"]
C high$["a"] = 8.0
C low$["b"] = 3.0
C chain$["b"] = 9.0

== chain_map_write
T chain$ = collections.ChainMap({}, {"n": 0})
B chain$["n"] += 1
B acc = acc * chain$["n"]
C chain$.maps[0].clear()

== mapping_proxy
T under$ = {"a": 1.0}
T proxy$ = types.MappingProxyType(under$)
B acc = acc * proxy$["a"] + len(proxy$)
C under$["a"] = 2.0
C under$["b"] = 2.0

== named_tuple
T Point$ = collections.namedtuple("Point$", "a b")
S H = Point$(1.0, row(1))
B @H = @H._replace(a=@H.a + 1, b=acc)
B acc = acc * @H.a + @H.b
C @H = Point$(5.0, torch.ones(3))

== named_tuple_argument
T Point$ = collections.namedtuple("Point$", "a b")
A p$ = Point$(1, row(1)) || Point$(2.5, row(2)) || Point$(row(1), 3)
B acc = acc * p$.a + p$.b
B out.append(p$._replace(a=acc))

== dataclass
T @dataclasses.dataclass
T class Data$:
T     n: int = 0
T     h: object = None
T     log: list = dataclasses.field(default_factory=list)
S H = Data$()
B @H.n += 1
B @H.h = acc if @H.h is None else @H.h + acc
B acc = acc * @H.n + @H.h
C @H = Data$(3)
C @H.h = None
C @H.n = 2.5
C @H.log.append(1)

== dataclass_frozen
T @dataclasses.dataclass(frozen=True)
T class Frozen$:
T     n: int = 1
T     t: object = None
S H = Frozen$()
B @H = dataclasses.replace(@H, n=@H.n + 1, t=acc)
B acc = acc * @H.n
C @H = Frozen$(7)

== dataclass_slots
T @dataclasses.dataclass(slots=True)
T class Thin$:
T     n: float = 1.0
T     h: object = None
S H = Thin$()
B @H.n *= 2
B @H.h = acc * 1.0
B acc = acc + @H.n
C @H.n = 1.0
C @H = Thin$(5.0)

== dataclass_argument
T @dataclasses.dataclass
T class Item$:
T     t: object
T     k: float = 2.0
T made$ = Item$(row(1))
A item$ = Item$(row(1)) || Item$(row(2), 3.0) || made$
B acc = acc + item$.t * item$.k
B item$.k += 1
C made$.k = 10.0
C made$.t = row(5)

== simple_namespace
S H = types.SimpleNamespace(n=1.0, h=None)
B @H.n += 1
B @H.h = acc
B acc = acc * @H.n
C @H.n = 10.0
C @H = types.SimpleNamespace(n=3, h=None)

== namespace_argument
A o$ = types.SimpleNamespace(k=2.0) || types.SimpleNamespace(k=3) || types.SimpleNamespace(k=row(1))
B acc = acc * o$.k
B o$.y = acc

== grows_and_counts
S H = [] || collections.deque()
B @H.append(float(x.shape[0]))
B if len(@H) > @{2||4}@:
B     acc = acc + 10
B acc = acc * len(@H)
C @H.clear()
C @H.append(1.0)

== grows_in_turns
S H = [row(1)]
S K = {}
B @H.append(acc * 2)
B if len(@H) % @{2||3}@ == 0:
B     acc = -acc
B @K["n"] = len(@H) - len(@K)
C @H.pop()
C @K["m"] = 2

== window_that_slides
S H = collections.deque(maxlen=@{2||3}@) || collections.deque([1.0], maxlen=2)
B @H.append(@{acc * 2||float(x.shape[0])}@)
B acc = acc * len(@H)
C @H.clear()
C @H.append(4.0)
C @H.extend([2.0, 3.0])
"""
