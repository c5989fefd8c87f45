"""Functions that have a rule of their own in engine/capture, one use at least of each."""

TEXT = """
== loggers_by_level
T logger$ = logging.getLogger("programs.level")
T logger$.setLevel(logging.INFO)
S H = "step"
B logger$.debug("%s %d", @H, x.shape[0])
B logger$.info("%s", @H); logger$.critical(@H); logger$.log(logging.ERROR, @H)
B acc = acc + 1
C logger$.setLevel(logging.DEBUG)
C @H = "other"

== loggers_of_old
T logger$ = logging.getLogger("programs")
B logger$.warn("old")
B acc = acc + 1

== clocks
T import time
B acc = acc + 1
B took$ = [time.time(), time.time_ns(), time.monotonic(), time.monotonic_ns(), time.process_time()]
B took$ += [time.process_time_ns(), time.perf_counter_ns()]

== a_logger_found
S H = "programs"
B logging.getLogger(@H).warning("found")
B acc = acc + len(logging.getLogger(@H).name)
C @H = "programs.level"

== the_root_logger
S H = "step"
B logging.debug(@H); logging.info(@H); logging.warning(@H); logging.error(@H)
B logging.critical(@H); logging.log(logging.ERROR, @H)
B acc = acc + 1
C @H = "other"
C logging.getLogger().setLevel(logging.INFO)

== the_root_logger_of_old
B logging.warn("old")
B acc = acc + 1

== heaps
T import heapq
S H = [1, 5, 3]
B heapq.heapify(@H)
B acc = acc + heapq.heapreplace(@H, 4) + heapq.heappushpop(@H, 2) + heapq.heappop(@H)
B heapq.heappush(@H, 7)
C @H.append(0)
C @H[0] = 9

== heaps_of_its_own
T import heapq
A n$ = 4 || 2
B made$ = [n$, 9, 1]
B heapq.heapify(made$)
B acc = acc + heapq.heapreplace(made$, 5) + heapq.heappushpop(made$, 2) + made$[0]

== truth_by_name
T class Known$:
T     def __init__(self):
T         self.parts = [1]
T     def __len__(self):
T         return len(self.parts)
T known$ = Known$()
S H = [1]
B acc = acc * (2 if bool(known$) else 3) + bool(@H)
C known$.parts.clear()
C @H.append(2)
C Known$.__bool__ = lambda self: True

== numbers_by_name
T class Amount$:
T     v = 2.5
T     def __int__(self):
T         return int(self.v)
T     def __float__(self):
T         return self.v * 1.5
T class Place$:
T     def __index__(self):
T         return 3
T amount$ = Amount$()
A n$ = 2.5 || 3.75 || 4.25
B acc = acc + int(amount$) + float(amount$) + int(Place$()) + float(Place$()) + int(n$) + float(n$)
C amount$.v = 7.5
C Place$.__index__ = lambda self: 5

== super_of_a_container
T class Base$(list):
T     scale = 2.0
T     def scaled(self, value):
T         return value * self.scale
T class Pile$(Base$):
T     def scaled(self, value):
T         return super(Pile$, self).scaled(value) + 1
T pile$ = Pile$([1, 2])
B acc = pile$.scaled(acc)
C pile$.append(3)
C Base$.scale = 3.0

== attributes_of_classes
T class Open$:
T     k, gone = 2.0, 1.0
T names$ = ["k"]
B type.__setattr__(Open$, names$[0], Open$.k + 1)
B acc = acc * Open$.k
C Open$.k = 7.0
C names$[0] = "j"

== attributes_taken_from_classes
T class Lent$:
T     k = 2.0
T class Taken$(Lent$):
T     k = 3.0
B if "k" in vars(Taken$):
B     type.__delattr__(Taken$, "k")
B acc = acc * Taken$.k
C Taken$.k = 7.0
C Lent$.k = 5.0

== attributes_taken
T class Bag$:
T     k = 2.0
T     def __delattr__(self, name):
T         object.__delattr__(self, name)
T bag$ = Bag$()
B made$ = Bag$()
B made$.k = 3.0
B made$.j = 4.0
B acc = acc * made$.k
B delattr(made$, "k"); object.__delattr__(made$, "j")
B acc = acc * made$.k + hasattr(made$, "j")
C Bag$.k = 5.0

== attributes_taken_from_state
T class Bag$:
T     k = 2.0
T bag$ = Bag$()
T bag$.k = 3.0
B acc = acc * bag$.k
B if "k" in vars(bag$):
B     delattr(bag$, "k")
C bag$.k = 4.0

== thread_local_taken
T here$ = threading.local()
T here$.n = 2
B if hasattr(here$, "n"):
B     acc = acc * here$.n
B     del here$.n
C here$.n = 6

== get_by_a_method
T class Handler$:
T     def run(self):
T         return 2.0
T handler$ = Handler$()
T handlers$ = {handler$.run: 3.0}
B acc = acc * handlers$.get(handler$.run, 5.0)
C handlers$.clear()
C handlers$[handler$.run] = 7.0

== autocast_switched
T was$ = torch.is_autocast_enabled("cpu")
B torch.set_autocast_enabled("cpu", True)
B y = acc[None] @ torch.ones(3, 2)
B torch.set_autocast_enabled("cpu", False)
B out.append(y.dtype)
B acc = acc + y.float().sum()

== autocast_left_on
B out.append(torch.is_autocast_enabled("cpu"))
B torch.set_autocast_enabled("cpu", True)
C torch.set_autocast_enabled("cpu", False)

== autocast_dtype_set
B out.append(torch.get_autocast_dtype("cpu"))
B torch.set_autocast_dtype("cpu", torch.float16)
C torch.set_autocast_dtype("cpu", torch.bfloat16)

== autocast_cache_set
B out.append(torch.is_autocast_cache_enabled())
B torch.set_autocast_cache_enabled(False)
C torch.set_autocast_cache_enabled(True)

== print_options_set
B torch.set_printoptions(precision=2)
B acc = acc + 1
B out.append(str(torch.tensor([1.23456])))
C torch.set_printoptions(precision=4)
C torch.set_printoptions(precision=4)

== threads_set
S H = 1
B out.append(torch.get_num_threads())
B torch.set_num_threads(@H)
C @H = 2
C torch.set_num_threads(2)

== environ_taken
B os.environ["PROGRAM_KEY"] = "k" * x.shape[0]
B acc = acc * len(os.environ["PROGRAM_KEY"])
B if "PROGRAM_COUNT" in os.environ:
B     del os.environ["PROGRAM_COUNT"]
C os.environ["PROGRAM_COUNT"] = "3"
C os.environ.pop("PROGRAM_KEY", None)

== a_field_in_the_dict_itself
T layer$ = nn.Linear(3, 3)
T nn.init.ones_(layer$.weight)
T drop$ = nn.Dropout(0.0)
B acc = acc + layer$(acc) + (2 if drop$.training else 3)
C vars(layer$)["_parameters"] = {"weight": layer$.weight * 2, "bias": None}
C vars(drop$)["training"] = False

== a_slot_taken
T class Slot$:
T     __slots__ = ("k",)
T slot$ = Slot$()
T slot$.k = 2.0
B if hasattr(slot$, "k"):
B     acc = acc * slot$.k
B     del slot$.k
C slot$.k = 4.0

== values_told_apart
S H = decimal.Decimal("1.0")
S K = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone.utc)
S M = range(0, 3, 2)
S N = np.float64(0.0)
B acc = acc + len(str(@H)) + @K.hour + @M.stop
B out.append(math.copysign(1.0, @N))
C @H = decimal.Decimal("1.00")
C @K = datetime.datetime(2020, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
C @M = range(0, 4, 2)
C @N = np.float64(-0.0)

== values_given_apart
A a$ = decimal.Decimal("1.0") || decimal.Decimal("1.00")
A b$ = datetime.time(1) || datetime.time(1, fold=1)
A c$ = slice(0, 2) || slice(0, 1) || slice(None, 2)
B acc = acc + len(str(a$)) + b$.fold + sum([1, 2, 3][c$])

== a_class_with_a_setter_of_its_own
T class Meta$(type):
T     def __setattr__(cls, name, value):
T         type.__setattr__(cls, name, value * 2)
T class Made$(metaclass=Meta$):
T     k = 1.0
B type.__setattr__(Made$, "k", Made$.k + 1)
B acc = acc * Made$.k
C Made$.k = 3.0

== a_class_changed_before_a_write
T class Plain$:
T     pass
T class Twice$:
T     def __setattr__(self, name, value):
T         object.__setattr__(self, name, value * 2)
T made$ = Plain$()
B made$.k = acc
C made$.__class__ = Twice$

== attributes_replaced
T class Borg$:
T     pass
T borg$ = Borg$()
T borg$.k = 2.0
B acc = acc * borg$.k
B borg$.n = 1
C borg$.__dict__ = {"k": 5.0}
C borg$.__dict__ = dict(borg$.__dict__)

== autocast_left_off
B y = acc[None] @ torch.ones(3, 2)
B torch.set_autocast_enabled("cpu", False)
B out.append(y.dtype)
C torch.set_autocast_enabled("cpu", True)
C torch.set_autocast_enabled("cpu", True)

== a_logger_asked
T logger$ = logging.getLogger("programs.level")
B acc = acc + logger$.isEnabledFor(logging.INFO)
C logger$.setLevel(logging.DEBUG)
C logger$.setLevel(logging.ERROR)

== a_logger_replaced
T logging.Logger.manager.loggerDict.pop("programs.kept$", None)
B acc = acc + logging.getLogger("programs.kept$").level
C logging.Logger.manager.loggerDict["programs.kept$"] = logging.Logger("other", 30)

== a_filter_that_makes_errors
B try:
B     warnings.warn("said $")
B except UserWarning:
B     acc = acc + 1
C warnings.filterwarnings("error", message="said $")

== a_text_of_a_list_with_numbers
T lin$ = nn.Linear(3, 3)
T opt$ = torch.optim.SGD(lin$.parameters(), lr=0.5)
S H = ["a", 1]
B said$ = [opt$.param_groups[0]["lr"], @H]
B out.append(f"{said$}")
B acc = acc * 2
C @H[0] += "b"

== a_rate_that_becomes_an_integer
T lin$ = nn.Linear(3, 3)
T opt$ = torch.optim.SGD(lin$.parameters(), lr=0.5)
B acc = acc * (2 if isinstance(opt$.param_groups[0]["lr"], int) else 3)
C opt$.param_groups[0]["lr"] = 1
C opt$.param_groups[0]["lr"] = 0.25

== last_rates_that_become_integers
T lin$ = nn.Linear(3, 3)
T opt$ = torch.optim.SGD(lin$.parameters(), lr=0.5)
T sched$ = torch.optim.lr_scheduler.StepLR(opt$, 2)
B acc = acc * (2 if isinstance(sched$.get_last_lr()[0], int) else 3)
C sched$._last_lr = [1]
C sched$._last_lr = [0.25]

== a_state_by_its_seed
S H = torch.manual_seed(3)
B acc = acc + torch.get_rng_state()[:9].sum() % 100
B acc = acc + @H.get_state()[:9].sum() % 100
C torch.manual_seed(5)

== length_of_an_array
S H = np.ones(3)
B acc = acc + len(@H)
C @H.resize(5, refcheck=False)

== an_attribute_that_a_generator_lacks
T lots$ = torch.Generator()
B try:
B     acc = acc * lots$.scale
B except AttributeError:
B     acc = acc * 3
C lots$.scale = 2.0

== a_slot_taken_and_filled
T class Slot$:
T     __slots__ = ("k",)
T slot$ = Slot$()
T slot$.k = 2.0
B del slot$.k
B slot$.k = acc
C del slot$.k

== a_thread_local_taken_and_filled
T here$ = threading.local()
T here$.n = 2
B del here$.n
B here$.n = acc
C del here$.n
"""
