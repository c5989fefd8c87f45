"""What no recording understands, a program for each place that says so (mutate.py).

They are not drawn: every program with one of them runs in segments.
"""

TEXT = """
== a_number_of_a_queue_class
T class Last$(collections.deque):
T     pass
T last$ = Last$([1, 2], 3)
B acc = acc * last$.maxlen
C last$ = Last$([1, 2], 5)

== a_class_method_of_its_own_kind
T class Marked$(classmethod):
T     pass
T class Has$:
T     k = 2.0
T     @Marked$
T     def scaled(cls, value):
T         return value * cls.k
T has$ = Has$()
B acc = has$.scaled(acc)
C Has$.k = 3.0

== defaults_set
T def plus$(value, k=1.0):
T     return value + k
A k$ = 2.0 || 3.0
B acc = plus$(acc)
B plus$.__defaults__ = (k$,)
C plus$.__defaults__ = (7.0,)

== class_set
T class Down$:
T     k = -1.0
T class Up$:
T     k = 2.0
T way$ = Up$()
B acc = acc * way$.k
B way$.__class__ = Down$
C way$.__class__ = Up$

== a_weak_reference_to_a_tensor
T kept$ = [torch.full((3,), 2.0)]
T weak$ = weakref.ref(kept$[0])
B acc = acc * (weak$() if weak$() is not None else 5)
C kept$.clear()

== a_deleter
T class Holder$:
T     n = 0
T     @property
T     def k(self):
T         return self.n
T     @k.deleter
T     def k(self):
T         self.n += 1
T holder$ = Holder$()
B del holder$.k
B acc = acc * holder$.k
C holder$.n = 5

== a_module_gives_up
T layer$ = nn.Linear(3, 3)
T layer$.scale = 2.0
B acc = acc * getattr(layer$, "scale", 3.0)
B if "scale" in vars(layer$):
B     del layer$.scale
C layer$.scale = 4.0

== an_attribute_of_a_function_taken
T def marked$():
T     return 1.0
T marked$.k = 2.0
B if hasattr(marked$, "k"):
B     acc = acc * marked$.k
B     del marked$.k
C marked$.k = 4.0

== a_cell_emptied
T def kept$(k):
T     def take(value):
T         nonlocal k
T         try:
T             found = value * k
T             del k
T         except NameError:
T             found = value + 1
T         return found
T     def put(value):
T         nonlocal k
T         k = value
T     return take, put
T take$, put$ = kept$(2.0)
B acc = take$(acc)
C put$(5.0)

== flags_of_an_array
S H = np.ones(3)
B acc = acc + @H.flags.writeable
C @H.flags.writeable = False

== format_map
S H = {"k": 2}
B acc = acc * len("{k}".format_map(@H))
C @H["k"] = 100

== a_property_asked
T class Has$:
T     @property
T     def k(self):
T         return 2.0
T has$ = Has$()
B acc = acc * Has$.k.__get__(has$)
C Has$.k = property(lambda self: 5.0)

== letters_of_a_bytearray
S H = bytearray(b"ab")
B acc = acc + @H.upper()[0]
C @H[0] = 99

== an_array_dumped
S H = np.ones(3)
B acc = acc + len(@H.dumps()) * 0 + float(@H[0])
C @H[0] = 3

== a_cache_of_zones
T import zoneinfo
B zoneinfo.ZoneInfo.clear_cache()
B acc = acc + 1

== hash_of_the_new
B acc = acc + (hash(Box()) != 0)
B acc = acc + (hash(acc) != 0)

== a_cache_of_tensors
T @functools.lru_cache(maxsize=2)
T def doubled$(value):
T     return 2.0
B acc = acc * doubled$(acc) + doubled$.cache_info().maxsize

== a_token_of_before
T var$ = contextvars.ContextVar("var$", default=1)
T token$ = var$.set(5)
B acc = acc * var$.get()
B if token$ is not None:
B     var$.reset(token$)
B     token$ = None
C token$ = var$.set(7)

== an_error_copied
S H = ValueError("a", 2)
B acc = acc + copy.copy(@H).args[1]
C @H = ValueError("a", 5)

== a_value_copied
T class Day$(datetime.date):
T     pass
S H = Day$(2020, 1, 2)
B acc = acc + copy.copy(@H).day
C @H = Day$(2020, 1, 5)

== state_of_a_function
T def plain$():
T     return 1
B acc = acc + (plain$.__getstate__() is None)

== a_memo_of_before
T memo$ = {}
S H = row(1)
B acc = acc + copy.deepcopy(@H, memo$)
B memo$.clear()
C @H.add_(1)

== draws_that_steer
B for _ in range(4):
B     acc = acc + 1 if random.random() < 0.5 else acc * 2
C random.seed(3)

== disabled
T count$ = 0
T @torch.compiler.disable
T def counted$(value):
T     global count$
T     count$ += 1
T     return value * count$
B acc = counted$(acc)
C count$ = 7

== constant_of_a_tensor
T @torch.compiler.assume_constant_result
T def sized$(value):
T     return float(value.shape[0])
B acc = acc * sized$(acc)

== a_buffer_written
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B view$[0] = 3
B acc = acc + 1
C raw$[0] = 1

== a_child_taken
T from xml.etree import ElementTree
T root$ = ElementTree.fromstring("<a><b/><c/><d/><e/><f/></a>")
B del root$[0]
B acc = acc + 1
C ElementTree.SubElement(root$, "f")

== a_buffer_iterated
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B for value in view$:
B     acc = acc + value
C raw$[0] = 1

== a_buffer_searched
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B acc = acc + (97 in view$)
C raw$[0] = 1

== a_buffer_asked
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B acc = acc + 1 if view$ else acc - 1

== a_buffer_compared
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B acc = acc + (view$ == b"abc")
C raw$[0] = 1

== a_buffer_shown
T raw$ = bytearray(b"abc")
T view$ = memoryview(raw$)
B acc = acc + len(f"{view$}"[:4])

== keys_with_a_hash_of_their_own
T class Name$:
T     def __init__(self, text):
T         self.text = text
T     def __hash__(self):
T         return hash(self.text)
T     def __eq__(self, other):
T         return self.text == other.text
T found$ = {Name$("a"): 1}
B acc = acc + (Name$("a") in found$)
C found$.clear()
C found$[Name$("a")] = 1

== names_of_a_class
T class Wide$:
T     k = 1
B acc = acc + len(dir(Wide$))
C Wide$.j = 2

== a_tensor_printed
B print(acc.sum())
B acc = acc + 1

== a_logger_by_keywords
T logger$ = logging.getLogger("programs")
B logger$.warning(msg="said")
B acc = acc + 1

== fields_of_an_argument
B acc = acc + len(x.__dict__) * 0

== a_list_on_an_argument
T held$ = row(1)
T held$.parts = [2.0]
A w$ = held$ || held$
B acc = acc + w$ * w$.parts[0]
C held$.parts[0] = 4.0

== a_class_made
T class Base$:
T     k = 2.0
B acc = acc * type("New$", (Base$,), {}).k
C Base$.k = 3.0

== a_warning_made_before
T said$ = UserWarning("said")
B warnings.warn(said$)
B acc = acc + 1

== a_numpy_iterator_from_before
T table$ = np.ndenumerate(np.arange(30.0))
B acc = acc + table$.__next__()[1]

== a_function_that_numpy_calls
T levels$ = [7.0]
T def filled$(vector, width, axis, kwargs):
T     vector[:width[0]] = levels$[0]
B acc = acc + float(np.pad(np.ones(2), 1, filled$)[0])
C levels$[0] = 5.0

== the_time_as_an_array
B acc = acc + (np.array("now", "M8[s]") > np.array("2020-01-01", "M8[s]"))

== the_time_as_a_scalar
B acc = acc + (np.datetime64("now") > np.datetime64("2020-01-01"))

== a_method_of_arrays_without_a_row
T rows$ = np.arange(3.0)
B acc = acc + float(np.frombuffer(rows$.dumps(), "u1").sum() % 7)
C rows$[0] = 5.0

== a_method_of_a_ufunc_of_python
T levels$ = [7.0]
T summed$ = np.frompyfunc(lambda a, b: a + b + levels$[0], 2, 1)
B acc = acc + float(summed$.reduce([1.0, 2.0, 3.0]))
C levels$[0] = 5.0

== the_name_of_an_outside_gradient
T def doubled$():
T     return (torch.ones(3, requires_grad=True) * 2)
S H = doubled$()
B acc = acc + len(@H.grad_fn.name())
C @H = (doubled$() + 2).exp()

== bytes_of_memory
T memory$ = memoryview(bytearray(b"abcd"))
B acc = acc + sum(bytes(memory$))
C memory$[0] = 7

== a_note_on_a_generator
T lots$ = torch.Generator()
B lots$.scale = 2.0
B acc = acc + 1
C found$ = getattr(lots$, "scale", 0.0)
c lots$.scale = 0.0
C found$ = getattr(lots$, "scale", 0.0)

== a_method_of_a_storage
T bytes$ = torch.ones(3)
T memory$ = bytes$.untyped_storage()
B acc = acc + memory$.nbytes() + memory$.tolist()[3]
C bytes$.mul_(3)

== bytes_of_a_storage
T bytes$ = torch.ones(3)
T memory$ = bytes$.untyped_storage()
B acc = acc + memory$[2]
C bytes$.mul_(3)

== a_schedule_with_effects
T lin$ = nn.Linear(3, 3)
T opt$ = torch.optim.SGD(lin$.parameters(), lr=0.5)
T asked$ = []
T def rate$(epoch):
T     asked$.append(epoch)
T     return 1 / (epoch + 1)
T sched$ = torch.optim.lr_scheduler.LambdaLR(opt$, rate$)
B opt$.step()
B sched$.step()
B acc = acc + opt$.param_groups[0]["lr"]
C found$ = len(asked$)

== the_class_of_a_number_kept
S H = []
B @H.append(acc.sum().item())
B acc = acc * (2 if type(@H[-1]) is float else 3)

== a_number_kept_is_an_instance
S H = []
B @H.append(acc.sum().item())
B acc = acc * (2 if isinstance(@H[-1], float) else 3)

== a_number_kept_says_its_class
S H = []
B @H.append(acc.sum().item())
B acc = acc * (2 if @H[-1].__class__ is float else 3)
"""
