"""Uses of rows of kinds.py: values, fields of C objects, iterables in Python (mutate.py)."""

TEXT = """
== equal_values_again
S H = 1000
S K = 0.5
S M = "ab"
S N = torch.device("cpu")
B acc = acc * @H / 1000 + @K + len(@M) + torch.ones(3, device=@N)
C @H = int("1000")
C @K = float("0.5")
C @M = "".join(["a", "b"])
C @N = torch.device("cpu")

== equal_paths_again
S H = pathlib.Path("a/b")
S K = pathlib.PurePosixPath("a/b")
S M = uuid.UUID(int=5)
B acc = acc + len(@H.parts) + len(@K.parts) + @M.int
C @H = pathlib.Path("a/b")
C @K = pathlib.PurePosixPath("a/b")
C @M = uuid.UUID(int=5)

== cached_by_type
T @functools.lru_cache
T def size$(kind):
T     return kind.itemsize
B acc = acc + size$(x.dtype)

== members_of_classes
T class Owner$:
T     __slots__ = ("v",)
T     @classmethod
T     def made(cls):
T         return 2
T     @functools.lru_cache
T     def kept(self):
T         return 3
T class Lazy$:
T     @functools.cached_property
T     def size(self):
T         return 4
B acc = acc + vars(Owner$)["made"].__func__(Owner$) + Owner$.kept.__wrapped__(None)
B acc = acc + vars(Lazy$)["size"].func(None) + len(Owner$.v.__name__)
B acc = acc + len(types.FunctionType.__code__.__name__) + np.multiply.nin
C Owner$.kept = functools.lru_cache(lambda self: 5)

== a_traceback
B try:
B     raise ValueError(2)
B except ValueError as error$:
B     acc = acc + error$.args[0] + (error$.__traceback__.tb_next is None)

== keys_of_comparisons
T def longer$(a, b):
T     return len(a) - len(b)
B wrap$ = functools.cmp_to_key(longer$)
B acc = acc + (wrap$("a") < wrap$("bb"))
C longer$ = lambda a, b: len(b) - len(a)

== c_functions_in_containers
S H = [len, str.upper, int.__add__, (1).__add__, vars(dict)["fromkeys"]]
B acc = acc + @H.count(len)
C @H.append(len)

== iterables_in_python
T class Rows$:
T     def __iter__(self):
T         yield 1
T         yield 2
T rows$ = Rows$()
B acc = acc + sum(bytes(rows$)) + sum(bytearray(rows$))
C Rows$.__iter__ = lambda self: iter([3])

== chained_in_python
T class Pairs$:
T     def __iter__(self):
T         yield [1, 2]
T         yield [3]
T pairs$ = Pairs$()
B acc = acc + sum(itertools.chain.from_iterable(pairs$))
C Pairs$.__iter__ = lambda self: iter([[3]])

== reads_of_buffers
T import array
S H = bytearray(b" abcab ")
S K = array.array("i", [1, 2])
B acc = acc + len(@H.decode()) + len(@H.hex()) + @H.find(b"b") + @H.rfind(b"b")
B acc = acc + @H.startswith(b" ") + @H.endswith(b" ") + len(@H.split(b"b")) + len(@H.strip())
B acc = acc + sum(@K.tolist()) + len(@K.tobytes())
C @H[1] = 98
C @K.append(3)

== writes_to_buffers
T import array
S H = array.array("i", [1, 2])
B @H.frombytes(bytes([1, 0, 0, 0]))
B @H.fromlist([3])
B acc = acc + @H[-1] + @H[-2]
C del @H[2:]

== a_path_of_the_system
S H = "a/b"
B acc = acc + len(os.fspath(@H))
C @H = "a/b/c"

== printed_plainly
T class Plain$:
T     pass
B acc = acc + len(object.__str__(Plain$())[:1])

== a_class_that_calls
T class Meta$(type):
T     def __call__(cls, *given):
T         return super().__call__(*given)
T class Made$(metaclass=Meta$):
T     v = 2
B acc = acc + Made$().v
C Made$.v = 3

== a_default_type
B torch.set_default_dtype(torch.float64)
B acc = acc + torch.ones(3)
C found$ = torch.get_default_dtype()
c torch.set_default_dtype(torch.float32)
C found$ = torch.get_default_dtype()
c torch.set_default_dtype(torch.float32)
"""
