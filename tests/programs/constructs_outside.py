"""The outside: environment, time, random streams, files, logging, modes."""

TEXT = """
== environ
B acc = acc * len(os.environ.get("PROGRAM_KEY", "ab"))
C os.environ["PROGRAM_KEY"] = "abcd"
C os.environ.pop("PROGRAM_KEY", None)

== environ_write
B os.environ["PROGRAM_COUNT"] = str(int(os.environ.get("PROGRAM_COUNT", "0")) + 1)
B acc = acc * int(os.environ["PROGRAM_COUNT"])
C os.environ["PROGRAM_COUNT"] = "5"

== context_variable
T var$ = contextvars.ContextVar("var$", default=2.0)
B acc = acc * var$.get()
C var$.set(5.0)
C var$.set(row(1))

== context_variable_write
T var$ = contextvars.ContextVar("var$", default=0)
B var$.set(var$.get() + 1)
B acc = acc * var$.get()
C var$.set(4)

== thread_local
T here$ = threading.local()
T here$.k = 2.0
B acc = acc * here$.k
C here$.k = 5.0
C here$.k = row(1)

== thread_local_write
T here$ = threading.local()
B here$.n = getattr(here$, "n", 0) + 1
B acc = acc * here$.n
C here$.n = 6

== lock
T lock$ = threading.Lock()
T n$ = 0
B with lock$:
B     n$ += 1
B acc = acc * n$
C n$ = 5

== time_passes
T times$ = []
B times$.append(time.perf_counter())
B acc = acc + (times$[-1] > times$[0] if len(times$) > 1 else False)
B out.append(len(set(times$)))
B times$[:] = times$[-1:]
B if len(times$) == 1 and isinstance(times$[0], float):
B     times$[0] = 0.0

== replaced_clock
T clock$ = types.SimpleNamespace(now=0.0)
T def tick$():
T     clock$.now += 1
T     return clock$.now
B acc = acc * tick$()
C clock$.now = 10.0
C tick$ = lambda: 3.0

== random_module
B acc = acc * random.random() + random.randint(0, 3)
C random.seed(5)

== random_steers
B if random.random() < 0.5:
B     acc = acc * 2
B out.append(random.@{randint(0, 2)||getrandbits(3)||randrange(1, 9, 2)}@)
C random.seed(5)

== random_spread
S H = 1.0
B acc = acc + random.@{uniform(0, @H)||gauss(0.0, 1.0)||triangular(0, 2, 1)||expovariate(2.0)}@
B out.append(f"{random.random():.3f}")
C @H = 2.5
C random.seed(@{2||7}@)

== random_order
T order$ = [1, 2, 3, 4]
B random.shuffle(order$)
B acc = acc * order$[0] + random.sample(order$, 2)[1]
C random.seed(6)

== random_choice
T options$ = [1.0, 2.0, 3.0]
B acc = acc * random.choice(options$)
C options$.append(4.0)
C random.seed(1)

== random_own
T rng$ = random.Random(3)
B acc = acc + rng$.random()
B rng$.shuffle(order$)
B out.append(order$[0])
T order$ = [1, 2, 3]
C rng$.seed(1)

== numpy_random
B acc = acc + float(np.random.rand())
C np.random.seed(3)

== numpy_random_numbers
B acc = acc + np.random.@{uniform(0, 2)||normal()||randint(0, 5)||random_sample()}@
C np.random.seed(4)

== numpy_random_arrays
B acc = acc + torch.from_numpy(np.random.@{rand(3)||normal(size=3)}@.astype("float32"))
C np.random.seed(4)

== numpy_generator
T gen$ = np.random.default_rng(3)
B acc = acc + float(gen$.random())
C gen$ = np.random.default_rng(4)

== torch_random
B acc = acc + torch.rand(3) * torch.randn(3).abs()
C torch.manual_seed(4)

== torch_generator
T gen$ = torch.Generator()
T gen$.manual_seed(2)
B acc = acc + torch.rand(3, generator=gen$)
C gen$.manual_seed(2)

== torch_seed_inside
B torch.manual_seed(3)
B acc = acc + torch.rand(3)

== uuid
T made$ = set()
B made$.add(uuid.uuid4())
B acc = acc * len(made$)
B if len(made$) > 2:
B     made$.clear()
B out.append(len(made$))
B made$ = set(range(len(made$)))

== file_read
T path$ = pathlib.Path(__file__).with_name("read$.txt")
T path$.write_text("2")
B acc = acc * float(path$.read_text())
C path$.write_text("3.5")

== file_write
T path$ = pathlib.Path(__file__).with_name("write$.txt")
T path$.write_text("")
B with open(path$, "a") as file:
B     file.write("x")
B acc = acc * path$.stat().st_size
C path$.write_text("")

== string_io
T buffer$ = io.StringIO()
B buffer$.write("a")
B acc = acc * len(buffer$.getvalue())
C buffer$.truncate(0)

== print
S H = 0
B @H += 1
B print("call", @H)
B print(x.shape[0], end="!")
C @H = 5

== print_number
A n$ = 1 || 2 || 2.5
B print(n$, f"{n$}", sep="-")
B acc = acc * n$

== print_steps
S H = 0
S K = 0.5
B @H += 1
B @K = @K * 0.75
B n, k = @H, @K
B print(f"{n}: {k:.3e}", "%d of %5.1f" % (n, k), "{0:>4}|{1!r}".format(n, k))
B print("step " + str(n), end=f" {n:03d}\\n")
C @H = 7
C @K = 2.0

== steps_kept
S H = 0
S K = []
B @H += 1
B n = @H
B @K.append(f"@{step {n}||{n:>5} of {x.shape[0]}||{n!r}}@")
B out.append(@K[-1])
B if len(@K) > @{3||5}@:
B     acc = acc + 10
C @H = 20
C @K.clear()

== steps_looked_at
S H = 7
B @H += 1
B n = @H
B name = f"step {n}"
B acc = acc * (2 if name.endswith(@{"9"||"1"}@) else len(name))
B out.append({name: @H})
C @H = 98

== text_of_number
A n$ = 1 || 2 || 2.5 || 3.25 || -4
B out.append(f"{n$}|{n$:>6}|{n$!s:5}|{n$:g}")
B out.append("%s" % n$ + "@{ n||, }@".join((str(n$), "end")))
B acc = acc * n$

== stdout_write
B sys.stdout.write("written\\n")
B acc = acc + 1

== logging
T logger$ = logging.getLogger("programs")
B logger$.warning("step %d", x.shape[0])
B acc = acc + 1

== logging_level
T logger$ = logging.getLogger("programs.level")
T logger$.setLevel(logging.WARNING)
B if logger$.isEnabledFor(logging.DEBUG):
B     acc = acc * 2
B logger$.info("said")
C logger$.setLevel(logging.DEBUG)
C logger$.setLevel(logging.ERROR)

== warning
B warnings.warn("careful", UserWarning)
B acc = acc * 2

== warning_steps
S H = 0
B @H += 1
B n = @H
B warnings.warn(f"step {n}", @{UserWarning||RuntimeWarning}@)
B acc = acc * @H
C @H = 12
C warnings.simplefilter("@{ignore||always}@")

== logging_steps
S H = 0
T logger$ = logging.getLogger("programs")
B @H += 1
B n = @H
B logger$.warning(f"step {n} of {x.shape[0]}")
B logger$.error("rate %g at %s", n / 4, "step %d" % n)
C @H = 12

== warning_once
S H = False
B if not @H:
B     warnings.warn("first")
B     @H = True
B acc = acc + 1
C @H = False

== default_dtype
B acc = acc + torch.ones(3) * 0.5
B out.append(torch.tensor(1.5))
C torch.set_default_dtype(torch.float64)
C torch.set_default_dtype(torch.float32)

== default_dtype_inside
B was = torch.get_default_dtype()
B torch.set_default_dtype(torch.float64)
B out.append(torch.ones(2))
B torch.set_default_dtype(was)

== grad_mode
T p$ = nn.Parameter(torch.ones(3))
B acc = acc + p$
B out.append(torch.is_grad_enabled())
C torch.set_grad_enabled(False)
C torch.set_grad_enabled(True)

== grad_mode_inside
T p$ = nn.Parameter(torch.ones(3))
B torch.set_grad_enabled(False)
B acc = acc + p$ * 2
B torch.set_grad_enabled(True)

== grad_mode_left
T p$ = nn.Parameter(torch.ones(3))
B torch.set_grad_enabled(@{False||True}@)
B acc = acc + p$ * 2

== no_grad_function
T p$ = nn.Parameter(torch.ones(3))
T @torch.no_grad()
T def quiet$(v):
T     return v * p$
B acc = acc + quiet$(acc)
C p$.data.mul_(2)

== autocast
B with torch.autocast("cpu", dtype=torch.bfloat16):
B     y = acc[None] @ torch.ones(3, 2)
B out.append(y.dtype)
B acc = acc + y.float().sum()

== gc_and_id
T ids$ = {}
B ids$[id(x)] = 1
B acc = acc + len(ids$)
B ids$.clear()

== sys_modules
B acc = acc + ("aid" in sys.modules)
B out.append(sys.modules["aid"].scale)
C aid.scale = 5.5

== copy_deepcopy
S H = {"n": 1, "t": row(1)}
B c = copy.deepcopy(@H)
B c["n"] += 1
B c["t"].add_(1)
B acc = acc + c["t"] * c["n"]
B out.append(c)
C @H["n"] = 4
C @H["t"].add_(1)

== regex
A s$ = "a1" || "b22" || "c"
B found = re.search(r"\\d+", s$)
B acc = acc * (int(found[0]) if found else 3)

== date_now
B out.append(isinstance(datetime.datetime.now(), datetime.datetime))
B acc = acc + (datetime.date.today().year > 2000)
"""
