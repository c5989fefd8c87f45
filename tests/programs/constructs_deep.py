"""What C code reads inside its arguments, and what is behind the functions that are called."""

TEXT = """
== list_in_a_named_tuple
T Pair$ = collections.namedtuple("Pair$", "parts k")
T pair$ = Pair$([2.0], 1)
B acc = acc * pair$.parts[0]
C pair$.parts[0] = 5.0

== list_in_an_error
T error$ = ValueError([1])
B acc = acc + len(str(error$))
C error$.args[0].append(2)

== list_in_a_tuple
S H = ([1], 2)
B acc = acc + @H.count([1]) + @H.index(2)
C @H[0].append(2)

== list_in_a_list
T two$ = [2]
T lists$ = [[1], [3], two$]
B try:
B     lists$.remove([2])
B     acc = acc * 2
B     lists$[2:] = [two$]
B except ValueError:
B     acc = acc + 1
C two$[0] = 7

== list_in_a_copied_tuple
T class Pair$(tuple):
T     pass
T pair$ = Pair$(([2.0], 1))
B acc = acc * copy.copy(pair$)[0][0]
C pair$[0][0] = 5.0

== copied_set_class
T class Pile$(set):
T     pass
T pile$ = Pile$({1, 2})
B acc = acc + len(copy.copy(pile$))
C pile$.add(3)

== keywords_of_numpy
S H = np.array([1.0, 2.0])
B acc = acc + float(np.sum(a=@H))
C @H[0] = 5

== view_of_before
T found$ = {"a": 1}
T view$ = found$.keys()
B acc = acc + view$.isdisjoint({"b"})
C found$["b"] = 1

== key_asked_for_by_a_method
S H = {"a": 1}
B acc = acc + @H.__contains__("c")
C @H["c"] = 1

== least_of_lists
S H = [1, 2]
S K = [1, 3, 4]
B acc = acc + len(min(@H, @K))
C @H[0] = 2
C @K[1] = 0

== list_class_turned
T class Pile$(list):
T     pass
T pile$ = Pile$([1, 2])
B for value$ in reversed(pile$):
B     acc = acc * 2 + value$
C pile$.append(3)
C pile$[0] = 5

== hash_of_a_text
S H = 0
B @H += 1
B n = @H
B out.append(hash((f"step {n}", 1)))
C @H = 7

== bound_method_of_before
T class Gain$:
T     k = 2.0
T def bound$(j):
T     def scaled(self, value):
T         return value * self.k * j
T     def put(value):
T         nonlocal j
T         j = value
T     return types.MethodType(scaled, Gain$()), put
T call$, put$ = bound$(1.0)
B acc = call$(acc)
C put$(3.0)
C call$.__self__.k = 5.0

== hook_of_before
T class Gain$:
T     k = 2.0
T def bound$(j):
T     def scaled(self, grad):
T         return grad * self.k * j
T     def put(value):
T         nonlocal j
T         j = value
T     return types.MethodType(scaled, Gain$()), put
T call$, put$ = bound$(1.0)
T p$ = nn.Parameter(torch.ones(3))
T p$.register_hook(call$)
B (p$ * acc).sum().backward()
B acc = acc + 1
C put$(3.0)
C call$.__self__.k = 5.0

== quiet_closure
T def quiet$(k):
T     @torch.no_grad()
T     def scaled(value):
T         return value * k
T     def put(value):
T         nonlocal k
T         k = value
T     return scaled, put
T call$, put$ = quiet$(2.0)
B acc = call$(acc)
C put$(3.0)

== quiet_closure_of_a_cast
T def cast$(k):
T     @torch.autocast("cpu", enabled=False)
T     def scaled(value):
T         return value * k[0]
T     def put(value):
T         k[0] = value
T     return scaled, put
T call$, put$ = cast$([2.0])
B acc = call$(acc)
C put$(3.0)

== mapped_closure
T def mapped$(k):
T     def scaled(value):
T         return value * k
T     def put(value):
T         nonlocal k
T         k = value
T     return torch.vmap(scaled), put
T call$, put$ = mapped$(2.0)
B acc = call$(acc)
C put$(3.0)

== compiled_closure
T def inner$(k):
T     @compile
T     def scaled(value):
T         return value * k
T     def put(value):
T         nonlocal k
T         k = value
T     return scaled, put
T call$, put$ = inner$(2.0)
B acc = call$(acc)
C put$(3.0)

== list_in_a_partial
T def first$(parts, value):
T     return value * parts[0]
T call$ = functools.partial(first$, [2.0])
B acc = call$(acc)
C call$.args[0][0] = 3.0

== tensor_of_an_array_written
S H = np.ones(3, "f")
B out.append(torch.from_numpy(@H))
B @H[0] += 1
C @H[1] = 5

== array_written_alone
S H = np.zeros(3)
B @H[0] = x.shape[0]
B acc = acc + 1
C @H[:] = 5
C @H[0] = 7

== queue_written_alone
S H = collections.deque([1, 2])
B @H[0] = x.shape[0]
B acc = acc + 1
C @H[1] = 5
C @H[0] = 7

== list_as_an_index
S H = [0, 1]
B acc = acc + x.sum(0)[@H].sum()
C @H[0] = 2

== list_as_an_index_written
S H = [0, 1]
B y = acc.clone()
B y[@H] = 5.0
B acc = acc + y
C @H[0] = 2

== list_of_places_in_lists
S H = ([0], [1])
B acc = acc + x[@H[0], @H[1]].sum()
C @H[0][0] = 2

== table_by_a_number
T table$ = [1.0, 2.0, 3.0, 4.0]
S H = 0
B @H += 1
B acc = acc * table$[@H % 4]
C table$[1] = 9.0
C table$[0] = 7.0
C table$[2] = 5.0

== item_by_a_method
T class Handler$:
T     def run(self):
T         return 2.0
T handler$ = Handler$()
T handlers$ = {handler$.run: 3.0}
B acc = acc * handlers$[handler$.run]
C handlers$[handler$.run] = 7.0

== method_asked_for
T class Handler$:
T     def run(self):
T         return 2.0
T handler$ = Handler$()
T handlers$ = {}
B acc = acc + (handler$.run in handlers$)
C handlers$[handler$.run] = 7.0

== list_asked_for
S H = [[1], [2]]
S K = [2]
B acc = acc + (@K in @H)
C @K[0] = 3

== part_of_a_list
S H = [1, 2, 3]
B acc = acc + sum(@H[:2])
C @H[0] = 5
C @H.pop(0)

== sum_of_lists
S H = [1]
S K = [2]
B acc = acc + sum(@H + @K)
C @H[0] = 3
C @K.append(3)

== lists_compared
S H = [1]
B acc = acc + (@H == [1]) + (@H < [2, 3])
C @H[0] = 3

== lists_in_a_heap
T import heapq
T one$, two$ = [3, 3], [1]
T heap$ = [one$, two$]
B heapq.heapify(heap$)
B acc = acc + len(heap$[0])
C two$[0] = 9
C one$[0] = 11

== counted_into_state
T count$ = collections.Counter()
B count$.update(["a", "b", "a"])
B acc = acc * count$["a"]
C count$["a"] = 5

== data_written_as_json
S H = {"a": [1]}
B acc = acc + len(json.dumps(@H))
C @H["a"].append(2)

== truth_of_a_list_class
T class Pile$(list):
T     pass
T pile$ = Pile$()
B acc = acc + 1 if pile$ else acc - 1
C pile$.append(1)

== key_that_may_be_missing
S H = {"k": 1}
B try:
B     del @H["k"]
B except KeyError:
B     acc = acc + 1
C @H["k"] = 2

== module_replaced
T sys.modules["extra$"] = types.SimpleNamespace(k=[2.0], __name__="extra$")
B import extra$
B acc = acc * extra$.k[0]
C sys.modules["extra$"].k[0] = 3.0
C sys.modules["extra$"] = types.SimpleNamespace(k=[5.0], __name__="extra$")

== package_replaced
T sys.modules["top$"] = types.SimpleNamespace(k=[2.0], __name__="top$", __path__=[])
T sys.modules["top$.sub"] = types.SimpleNamespace(k=1, __name__="top$.sub")
B import top$.sub
B acc = acc * top$.k[0]
C sys.modules["top$"].k[0] = 3.0

== list_in_the_graph
S H = [2.0, 3.0]
T @torch.compiler.allow_in_graph
T def total$(values, value):
T     return value * sum(values)
B acc = total$(@H, acc)
C @H[0] = 5.0

== list_that_is_constant
T kept$ = [2.0]
T @torch.compiler.assume_constant_result
T def parts$():
T     return kept$
B acc = acc * parts$()[0]
C kept$[0] = 5.0

== array_asked
S H = np.array([1.0])
B acc = acc + 1 if @H else acc - 1
C @H[0] = 0

== view_spread
T def named$(k=1.0, j=1.0):
T     return k + j
T parts$ = {"k": 2.0}
T shown$ = types.MappingProxyType(parts$)
B acc = acc * named$(**shown$) + len({**shown$})
C parts$["j"] = 3.0
C parts$["k"] = 5.0

== updated_containers
S H = {1}
S K = {"a": 1}
B @H |= {len(@K) + 2}
B @K |= {"b": 2}
B acc = acc + len(@H) + len(@K)
C @H.add(9)
C @K["c"] = 5
"""
