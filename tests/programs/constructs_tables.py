"""One use at least of every row of engine/capture/kinds.py and c_tables.py (mutate.py)."""

TEXT = """
== functions_of_one_number
T reals$ = [math.acos, math.asin, math.asinh, math.atan, math.atanh, math.cbrt, math.ceil, math.cos]
T reals$ += [math.cosh, math.degrees, math.erf, math.erfc, math.exp, math.exp2, math.expm1]
T reals$ += [math.fabs, math.floor, math.gamma, math.isfinite, math.isinf, math.isnan, math.lgamma]
T reals$ += [math.log, math.log10, math.log1p, math.log2, math.radians, math.sin, math.sinh]
T reals$ += [math.sqrt, math.tan, math.tanh, math.trunc, math.ulp, abs, round, callable]
A v$ = 0.5 || 0.25 || 0.75
B for function$ in reals$:
B     acc = acc + function$(v$)
B acc = acc + math.acosh(v$ + 1) + sum(math.frexp(v$)) + sum(math.modf(v$))

== functions_of_two_numbers
T pairs$ = [math.atan2, math.copysign, math.fmod, math.hypot, math.isclose, math.nextafter]
T pairs$ += [math.pow, math.remainder, pow, max, min]
A v$ = 0.5 || 0.25 || 1.5
B for function$ in pairs$:
B     acc = acc + function$(v$, 0.75)
B acc = acc + sum(divmod(v$, 0.25)) + math.dist((v$, 1), (0, 1)) + math.fsum([v$, 1.0])
B acc = acc + math.ldexp(v$, 2) + math.prod([v$, 2])

== functions_of_integers
T wholes$ = [math.factorial, math.isqrt, bin, hex, oct, chr, ascii, str, repr]
A n$ = 3 || 4 || 5
B for function$ in wholes$:
B     got$ = function$(n$)
B     acc = acc + (len(got$) if isinstance(got$, str) else got$)
B acc = acc + math.comb(n$, 2) + math.perm(n$, 2) + math.gcd(n$, 6) + math.lcm(n$, 2) + ord(chr(n$))
B acc = acc + sum([any([n$ > 3]), all([n$ > 3])]) + operator.index(n$)
B acc = acc + operator.truth(n$) + operator.length_hint([1, n$])

== newer_functions_of_numbers
T newer$ = [getattr(math, name) for name in ("sumprod",) if hasattr(math, name)]
T fused$ = [getattr(math, name) for name in ("fma",) if hasattr(math, name)]
A v$ = 0.5 || 0.25
B for function$ in newer$:
B     acc = acc + function$([v$, 2.0], [1.0, 2.0])
B for function$ in fused$:
B     acc = acc + function$(v$, 2.0, 1.0)

== functions_of_complex
T import cmath
A v$ = 0.5 || 0.25
B z$ = cmath.rect(v$, 1.0) + cmath.sqrt(-1) + cmath.exp(1j) + cmath.log(complex(v$, 2.0))
B acc = acc + cmath.phase(z$) + sum(cmath.polar(z$)) + cmath.isnan(z$) + cmath.isinf(z$)
B acc = acc + cmath.isfinite(z$) + cmath.isclose(z$, z$)

== functions_of_bytes
T import bisect, binascii, zlib
A n$ = 3 || 4 || 500
B raw$ = struct.pack("<i", n$)
B acc = acc + struct.unpack("<i", raw$)[0] + struct.unpack_from("<i", raw$)[0]
B acc = acc + struct.calcsize("<i") + binascii.crc32(raw$) % 7 + zlib.crc32(raw$) % 5
B acc = acc + zlib.adler32(raw$) % 3 + len(binascii.unhexlify(binascii.hexlify(raw$)))
B acc = acc + bisect.bisect_left([1, 3, 5], n$) + bisect.bisect_right([1, 3, 5], n$)
B acc = acc + len(bytes(2)) + sum(bytes([n$ % 9]))

== functions_of_sequences
S H = [3, 1, 2]
B acc = acc + operator.countOf(@H, 1) + operator.indexOf(@H, 2) + len(operator.concat(@H, [1]))
B acc = acc + len(operator.iconcat([1], @H)) + sum(tuple(@H)) + len(set(@H)) + len(frozenset(@H))
B acc = acc + sum(sorted(@H)[:2]) + sum(list(reversed(@H))[:1])
B acc = acc + functools.reduce(operator.add, @H)
B first$, second$ = itertools.tee(@H)
B acc = acc + sum(first$) + max(second$)
C @H.append(2)
C @H[0] = 7

== about_classes
T class Base$:
T     def __init__(self):
T         super().__init__()
T         self.v = 2
T class Next$(Base$):
T     pass
B it$ = Next$()
B acc = acc + issubclass(Next$, Base$) + len(Base$.__subclasses__()) + len(Next$.mro()) + it$.v
B acc = acc + object.__eq__(it$, it$) + (object.__ne__(it$, it$) is False) + callable(it$)
B acc = acc + type.__instancecheck__(Base$, it$) + type.__subclasscheck__(Base$, Next$)
B acc = acc + type.mro(Next$)[1].__name__.count("B") + len(type.__subclasses__(Base$))
B acc = acc + (object.__sizeof__(it$) > 0) + (len(object.__repr__(it$)) > 0)
B acc = acc + (object.__hash__(it$) == object.__hash__(it$)) + (object.__new__(Base$) is not None)
B acc = acc + (len(object.__format__(it$, "")) > 0) + (object.__init_subclass__() is None)
B acc = acc + len(locals()) * 0 + ("x" in globals()) + isinstance(object(), object)
C Base$.__init__ = lambda self: setattr(self, "v", 5)

== abstract_classes
T class Shape$(abc.ABC):
T     @abc.abstractmethod
T     def area(self): ...
T class Square$(Shape$):
T     def area(self):
T         return 4
B acc = acc + Shape$.__instancecheck__(Square$()) + Shape$.__subclasscheck__(Square$)
B acc = acc + Square$().area() + isinstance(Square$(), Shape$) + issubclass(Square$, Shape$)
C Square$.area = lambda self: 9

== the_interpreter
T import stat
B acc = acc + (sys.getrecursionlimit() > 0) + (sys.getsizeof(1) > 0) + len(sys.intern("ab"))
B acc = acc + stat.S_ISDIR(16384) + stat.S_ISREG(16384)

== operator_arithmetic
A v$ = 6 || 7
B for function$ in (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
B                   operator.mod, operator.pow, operator.and_, operator.or_, operator.xor,
B                   operator.lshift, operator.rshift, operator.lt, operator.le, operator.eq,
B                   operator.ne, operator.gt, operator.ge, operator.is_, operator.is_not):
B     acc = acc + function$(v$, 2)
B for function$ in (operator.neg, operator.pos, operator.invert, operator.not_):
B     acc = acc + function$(v$)

== operator_in_place
A v$ = 6 || 7
B for function$ in (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.imod,
B                   operator.ifloordiv, operator.ipow):
B     acc = function$(acc + 0, 1.5)
B for function$ in (operator.iand, operator.ior, operator.ixor):
B     acc = acc + function$(v$, 3)
B acc = operator.matmul(x, torch.eye(3)).sum(0) + acc

== operator_items
S H = [1, 2]
B acc = acc + operator.getitem(@H, 0) + operator.contains(@H, 2)
B made$ = {}
B operator.setitem(made$, "k", acc)
B acc = operator.itemgetter("k")(made$) + operator.attrgetter("ndim")(x)
B acc = operator.methodcaller("abs")(acc)
C @H[0] = 5

== kept_getters
T pick$ = operator.itemgetter(1)
T kind$ = operator.attrgetter("ndim")
T twice$ = operator.methodcaller("mul", 2)
B acc = twice$(acc + pick$([1, 2, 3]) + kind$(x))
C pick$ = operator.itemgetter(2)

== reads_of_lists
S H = [1, 2, 2]
B acc = acc + @H.index(2) + @H.count(2) + len(@H.copy()) + @H.__len__() + @H.__contains__(2)
B acc = acc + @H.__getitem__(0) + sum(@H.__iter__()) + sum(@H.__reversed__()) + @H.__eq__([1])
B acc = acc + @H.__ne__([1]) + @H.__lt__([3]) + @H.__le__([3]) + @H.__gt__([3]) + @H.__ge__([3])
B acc = acc + len(@H.__add__([1])) + len(@H.__mul__(2)) + len(@H.__rmul__(2)) + len(@H.__repr__())
B acc = acc + len(@H.__str__()) + (@H.__sizeof__() > 0) + len(@H.__format__(""))
B acc = acc + @H.__getattribute__("count")(2)
C @H.append(2)
C @H[1] = 1

== reads_of_sets
S H = {1, 2}
B acc = acc + len(@H.union({3})) + len(@H.intersection({1})) + len(@H.difference({1}))
B acc = acc + len(@H.symmetric_difference({1})) + @H.isdisjoint({1}) + @H.issubset({1, 2, 3})
B acc = acc + @H.issuperset({1}) + len(@H.__or__({5})) + len(@H.__and__({1})) + len(@H.__sub__({1}))
B acc = acc + len(@H.__xor__({1})) + len(@H.copy())
C @H.add(3)
C @H.discard(1)

== reads_of_dicts
S H = {"a": 1, "b": 2}
B acc = acc + sum(@H.values()) + len(@H.keys()) + len(@H.items()) + @H.get("a") + len(@H.copy())
B acc = acc + len(@H.__or__({"c": 1})) + len(@H.__ror__({"c": 1}))
B for key$ in reversed(@H):
B     acc = acc * 2 + @H[key$]
B acc = acc + sum(reversed(@H.values())) + len(list(reversed(@H.items())))
C @H["a"] = 5
C @H["c"] = 7

== counted
S H = [1, 1, 2]
B found$ = collections.Counter(@H)
B acc = acc + found$.most_common(1)[0][1] + len(found$)
C @H.append(2)

== writes_to_lists
B made$ = [3, 1, 2]
B made$.sort(key=lambda v: -v)
B made$.extend([5]); made$.insert(0, 4); made$.remove(1); made$.sort(); made$.reverse()
B made$.__setitem__(0, 9); made$.__delitem__(1); made$.__iadd__([1]); made$.__imul__(2)
B acc = acc + sum(made$) + made$.pop()
B made$.clear()
B made$.append(acc)
B acc = made$[0] + len(made$)

== writes_to_dicts
B made$ = {"a": 1, "b": 2}
B made$.update(c=3); made$.setdefault("d", 4); made$.__ior__({"e": 5}); made$.pop("a")
B acc = acc + sum(made$.values()) + len(made$.popitem())
B made$.clear()
B ordered$ = collections.OrderedDict(a=1, b=2)
B ordered$.move_to_end("a")
B acc = acc + len(made$) + list(ordered$)[0].count("b") + len(ordered$.keys())
B acc = acc + len(ordered$.items())
B acc = acc + sum(ordered$.values())

== writes_to_sets
B made$ = {1, 2, 3}
B made$.add(4); made$.discard(1); made$.remove(2); made$.update({7, 8})
B made$.difference_update({7})
B made$.intersection_update({3, 4, 8, 9}); made$.symmetric_difference_update({9, 10})
B made$.__ior__({11}); made$.__iand__({3, 8, 11, 12}); made$.__isub__({3}); made$.__ixor__({40})
B acc = acc + sum(made$) + len(made$)
B made$.clear()

== writes_to_queues
B made$ = collections.deque([1, 2, 3])
B made$.appendleft(4); made$.extendleft([5, 6]); made$.rotate(1); made$.popleft(); made$.append(7)
B made$.insert(1, 8); made$.reverse(); made$.remove(8)
B acc = acc + sum(made$) + made$[0] + made$.pop() + len(made$.__copy__())
B for item$ in reversed(made$):
B     acc = acc * 2 + item$
B for item$ in made$:
B     acc = acc - item$

== writes_to_a_queue_of_before
S H = collections.deque([1, 2], 2)
B @H.append(@H[0] + 1)
B acc = acc + @H[0]
C @H[0] = 5

== iterators
B for item$ in (iter([1, 2]), iter((1, 2)), iter(range(2)), iter({1}), iter({1: 2}), iter(b"a"),
B               iter({1: 2}.values()), reversed([1]), enumerate([1]), zip([1], [2]), map(abs, [-1]),
B               filter(None, [1]), reversed(range(3)), reversed({1: 2}), reversed({1: 2}.values()),
B               reversed({1: 2}.items()), iter({1: 2}.items()), iter(range(1 << 70, (1 << 70) + 1)),
B               iter("a"), iter("\\u00e9"), reversed((1, 2)), reversed(collections.deque([1])),
B               iter(collections.deque([1]))):
B     acc = acc + len(list(item$)) + (next(item$, None) is None)

== stepped_iterators
B for item$ in (iter([1, 2]), iter((1, 2)), iter(range(2)), iter({1}), iter({1: 2}), iter(b"a"),
B               iter({1: 2}.values()), reversed([1]), enumerate([1]), zip([1], [2]), map(abs, [-1]),
B               filter(None, [1]), reversed(range(3)), reversed({1: 2}), reversed({1: 2}.values()),
B               reversed({1: 2}.items()), iter({1: 2}.items()), iter("a"), iter("\\u00e9"),
B               iter(range(1 << 70, (1 << 70) + 1)), reversed((1, 2)),
B               reversed(collections.deque([1])), iter(collections.deque([1])),
B               iter(collections.OrderedDict(a=1)), iter([2, 1].pop, 1)):
B     for _ in item$:
B         acc = acc + 1

== iterators_by_index
T class Indexed$:
T     def __getitem__(self, i):
T         return [1, 2][i]
B for item$ in Indexed$():
B     acc = acc + item$
B for item$ in iter(np.array([1, 2])):
B     acc = acc + int(item$)
C Indexed$.__getitem__ = lambda self, i: [1, 2, 3][i]

== iterators_of_itertools
S H = [1, 2, 3]
B for item$ in (
B     itertools.chain(@H, [1]), itertools.chain.from_iterable([@H]), itertools.islice(@H, 2),
B     itertools.accumulate(@H), itertools.repeat(1, 2), itertools.compress(@H, [1, 0, 1]),
B     itertools.dropwhile(lambda v: v < 2, @H), itertools.takewhile(lambda v: v < 2, @H),
B     itertools.filterfalse(lambda v: v < 2, @H), itertools.starmap(max, [@H[:2]]),
B     itertools.islice(itertools.count(2), 2), itertools.islice(itertools.cycle(@H), 5),
B     itertools.tee(@H)[0]):
B     for number$ in item$:
B         acc = acc + number$
C @H.append(9)

== tuples_of_itertools
S H = [1, 2, 3]
B for item$ in (
B     itertools.combinations(@H, 2), itertools.combinations_with_replacement(@H, 2),
B     itertools.permutations(@H, 2), itertools.product(@H, @H), itertools.pairwise(@H),
B     itertools.zip_longest(@H, [1], fillvalue=0),
B     *([itertools.batched(@H, 2)] if hasattr(itertools, "batched") else [])):
B     for numbers$ in item$:
B         acc = acc + sum(numbers$)
B for key$, group$ in itertools.groupby(@H, lambda v: v % 2):
B     for number$ in group$:
B         acc = acc + key$ * number$
C @H.append(9)

== keyed_sort
T def longer$(a, b):
T     return len(a) - len(b)
S H = ["aaa", "b", "cc"]
B acc = acc + len(sorted(@H, key=functools.cmp_to_key(longer$))[0])
C @H.append("")
C longer$ = lambda a, b: len(b) - len(a)

== moments
A day$ = datetime.date(2020, 1, 2) || datetime.date(2021, 1, 2)
S H = datetime.timedelta(days=2)
S K = datetime.time(1, 2)
S M = datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc)
B acc = acc + day$.day + @H.days + @K.hour + (day$ + @H).day + @M.year
B acc = acc + @M.tzinfo.utcoffset(None).days
C @H = datetime.timedelta(days=5)
C @K = datetime.time(3)
C @M = datetime.datetime(2023, 1, 2, tzinfo=datetime.timezone.utc)

== plain_constants
S H = (NotImplemented, Ellipsis, slice(0, 2))
S K = pathlib.PurePosixPath("a/b")
S M = uuid.UUID(int=5)
S N = np.dtype("f4")
B acc = acc + (@H[0] == NotImplemented) + (@H[1] == ...) + sum([1, 2, 3][@H[2]]) + len(@K.parts)
B acc = acc + @M.int + @N.itemsize + (@N == np.dtype("f4"))
C @H = (None, ..., slice(0, 1))
C @K = pathlib.PurePosixPath("a")
C @M = uuid.UUID(int=6)
C @N = np.dtype("f8")

== compared_constants
S H = pathlib.PurePosixPath("a/b")
S K = uuid.UUID(int=5)
S M = datetime.timezone.utc
S N = torch.float32
T path$, number$ = pathlib.PurePosixPath("a/b"), uuid.UUID(int=5)
B acc = acc + (@H == path$) + (@K == number$)
B acc = acc + (@M == datetime.timezone.utc) + torch.ones(3, dtype=@N)
C @H = pathlib.PurePosixPath("a")
C @K = uuid.UUID(int=6)
C @N = torch.float64

== numpy_functions
T scale$ = np.multiply
S H = np.array([1.0, 2.0, 3.0], "f")
B acc = acc + torch.from_numpy(scale$(@H, 2)) + float(np.dtype("f4").itemsize)
C scale$ = np.add
C @H[0] = 5

== annotations
T import typing
T Value$, Meters$ = typing.TypeVar("Value$"), typing.NewType("Meters$", int)
T names$ = (typing.List[int], typing.Optional[int], list[int], int | str, typing.Any, typing.List,
T           typing.Callable, typing.Callable[[int], int], typing.Tuple, typing.Union,
T           typing.Literal[1], typing.Annotated[int, 2], Value$)
B for name$ in names$:
B     acc = acc + callable(name$) + len(name$.__module__)
B made$ = (typing.Optional[int], typing.Callable[[int], int], typing.Tuple[int],
B          typing.Union[int, str], typing.Literal[1], typing.Annotated[int, 2], list[int])
B acc = acc + len(made$) + Meters$(3) + len(list[int].__mro_entries__((1,)))
B acc = acc + len(typing.cast(typing.List[int], [1])) + len(list[int].__args__)
C names$ = (*names$, names$[0])

== code_of_a_function
T def plain$(v):
T     return v
B acc = acc + plain$.__code__.co_argcount
C plain$ = lambda v, w: v

== classes_of_values
T class Length$(int):
T     pass
T class Real$(float):
T     pass
T class Name$(str):
T     pass
T class Raw$(bytes):
T     pass
S H = Length$(3)
S K = Real$(0.5)
S M = Name$("abc")
S N = Raw$(b"ab")
B acc = acc + @H * @K + len(@M) + len(@N)
C @H = Length$(4)
C @K = Real$(1.5)
C @M = Name$("a")

== classes_of_containers
T class Pile$(list):
T     pass
T class Ring$(collections.deque):
T     pass
T class Group$(set):
T     pass
T class Fixed$(frozenset):
T     pass
T class Table$(collections.defaultdict):
T     pass
T class Ordered$(collections.OrderedDict):
T     pass
S H = Pile$([1, 2])
S K = Group$({1})
S M = Fixed$({1, 2})
S N = Table$(int, a=2)
B acc = acc + sum(@H) + len(@K) + len(@M) + @N["a"] + len(Ring$([1, 2])) + len(Ordered$(a=1))
C @H.append(4)
C @K.add(4)
C @N["a"] = 5

== made_descriptors
B holder$ = types.SimpleNamespace(v=acc, w=types.MethodType(lambda self: self + 1, 3))
B acc = holder$.v + holder$.w() + len(types.MappingProxyType({1: 2})) + complex(1, 2).real
B acc = acc + len(range(3)) + len([1, 2][slice(1)]) + functools.partial(max, 2)(1)
B acc = acc + (isinstance(object(), object)) + collections.defaultdict(int)["k"]

== made_members
T def width$(self):
T     return 2
B made$ = [property(width$), classmethod(width$), staticmethod(width$)]
B acc = acc + made$[0].fget(1) + made$[1].__func__(1) + made$[2].__func__(1) + len(made$)
C width$ = lambda self: 3

== weakly_alive
T held$ = [Box()]
T watch$ = weakref.ref(held$[0])
B acc = acc * (2 if watch$() is None else 3)
C held$.clear()

== an_argument_of_before
T shared$ = data(3, 4)
T def pick$():
T     return shared$ + 0
A y$ = pick$()
B acc = acc * (2 if y$ is shared$ else 3)
C pick$ = lambda: shared$

== arguments_that_come_to_overlap
T one$, other$ = data(3, 4)[0], data(3, 5)[0]
A y$ = one$
A z$ = other$
B y$.add_(1)
B acc = acc + z$
C other$ = torch.from_numpy(one$.numpy())

== an_argument_with_a_mark
T marked$ = data(3, 4)[0]
T marked$.scale = 2
A y$ = marked$
B acc = acc * y$.scale
C marked$.scale = 5

== a_number_decided_upon
T steps$ = [0]
A n$ = len(steps$)
B acc = acc * (2 if n$ > 4 else 3)
C steps$.extend([0])
C steps$.extend([0, 0])
C steps$.extend([0, 0])

== arguments_that_overlap
T base$ = torch.arange(9.0)
T cut$ = 1
A y$ = base$[0:3]
A z$ = base$[cut$ : cut$ + 3]
B y$.add_(1)
B acc = acc + z$
C cut$ = 2

== deterministic_read
B acc = acc + torch.are_deterministic_algorithms_enabled() + torch.is_warn_always_enabled()
C torch.use_deterministic_algorithms(True)
C torch.use_deterministic_algorithms(False)
C torch.set_warn_always(True)
C torch.set_warn_always(False)

== anomaly_read
B acc = acc + 2 * torch.is_anomaly_enabled() + torch.is_anomaly_check_nan_enabled()
C torch.set_anomaly_enabled(True)
C torch.set_anomaly_enabled(False, False)
C torch.set_anomaly_enabled(False)

== anomaly_set
B torch.set_anomaly_enabled(False, False)
B acc = acc + 1
C found$ = torch.is_anomaly_check_nan_enabled()
c torch.set_anomaly_enabled(False)
C found$ = torch.is_anomaly_check_nan_enabled()
c torch.set_anomaly_enabled(False)

== precision_read
B acc = acc + len(torch.get_float32_matmul_precision())
C torch.set_float32_matmul_precision("high")
C torch.set_float32_matmul_precision("highest")

== deterministic_set
B torch.use_deterministic_algorithms(True)
B acc = acc + 1
C found$ = torch.are_deterministic_algorithms_enabled()
c torch.use_deterministic_algorithms(False)
C found$ = torch.are_deterministic_algorithms_enabled()
c torch.use_deterministic_algorithms(False)

== precision_set
B torch.set_float32_matmul_precision("high")
B acc = acc + 1
C found$ = torch.get_float32_matmul_precision()
c torch.set_float32_matmul_precision("highest")
C found$ = torch.get_float32_matmul_precision()
c torch.set_float32_matmul_precision("highest")

== warnings_set
B torch.set_warn_always(True)
B acc = acc + 1
C found$ = torch.is_warn_always_enabled()
c torch.set_warn_always(False)
C found$ = torch.is_warn_always_enabled()
c torch.set_warn_always(False)

== called_instances
T class Static$:
T     @staticmethod
T     def __call__(v):
T         return v + 1
T class OfClass$:
T     @classmethod
T     def __call__(cls, v):
T         return v + 2
T class Partial$:
T     __call__ = functools.partial(max, 3)
T class Builtin$:
T     __call__ = abs
T class Kind$:
T     __call__ = float
B acc = acc + Static$()(1) + OfClass$()(1) + Partial$()(1) + Builtin$()(-2) + Kind$()(2)
C Static$.__call__ = staticmethod(lambda v: v + 5)
C Builtin$.__call__ = staticmethod(lambda v: v + 7)

== patterns
T form$ = re.compile("a+")
S H = "aab"
B acc = acc + len(form$.sub("", @H)) + bool(form$.match(@H)) + len(form$.findall(@H))
B found$ = form$.search(@H)
B acc = acc + (found$.start() if found$ else 7) + (len(found$.group(0)) if found$ else 0)
C @H = "ba"
C form$ = re.compile("b+")

== texts_of_json
T text$ = '{"a": [1, 2.5], "b": "c"}'
B acc = acc + len(json.dumps({"a": 1, "b": "\\u00e9"})) + json.loads(text$)["a"][0]
B acc = acc + len(json.encoder.encode_basestring_ascii("\u00e9"))
B acc = acc + json.decoder.scanstring('a"', 0)[1]
B acc = acc + len(json.encoder.encode_basestring("\u00e9"))
B acc = acc + len(json.dumps("x")) + len(json.dumps("\\u00e9", ensure_ascii=False))
C text$ = '{"a": [4]}'

== a_file_that_is_there
B acc = acc + os.path.isdir("/") + os.path.isfile("/")
"""
