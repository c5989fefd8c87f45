"""Results of every kind."""

TEXT = """
== result_ordered_dict
B out.append(collections.OrderedDict(a=acc, b=acc * 2))

== result_dict_kinds
B d = collections.defaultdict(list)
B d["k"].append(acc)
B out.append(d)
B out.append(collections.Counter(a=2))

== result_deque
B out.append(collections.deque([acc, 1], maxlen=4))

== result_set
B out.append({1, 2, x.shape[0]})
B out.append(frozenset((1,)))

== result_set_of_tensors
B out.append({acc * 2})

== result_namespace
B out.append(types.SimpleNamespace(y=acc, n=1))

== result_named_tuple
T Out$ = collections.namedtuple("Out$", "y n")
B out.append(Out$(acc * 2, 3))

== result_dataclass
T @dataclasses.dataclass@{||(frozen=True)||(slots=True)}@
T class Result$:
T     y: object
T     n: int = 3
B out.append(Result$(acc * 2))

== result_model_output
T @dataclasses.dataclass
T class ModelOut$(collections.OrderedDict):
T     loss: object = None
T     logits: object = None
T     def __post_init__(self):
T         for field in dataclasses.fields(self):
T             value = getattr(self, field.name)
T             if value is not None:
T                 self[field.name] = value
B out.append(ModelOut$(logits=acc * 2))

== result_object
T class Wrapped$:
T     def __init__(self, y):
T         self.y = y
B out.append(Wrapped$(acc * 2))

== result_lambda
B y = acc * 2
B out.append(lambda: y + 1)

== result_lambda_state
S H = 1.0
B k = @H
B out.append(lambda: acc * k)
B @H += 1

== result_partial
B out.append(functools.partial(torch.add, acc))

== result_generator
B y = acc * 1.0
B out.append(y * k for k in (1, 2))

== result_iterator
B out.append(@{iter([acc, 1])||map(float, [1, 2])||zip([acc], [1])||reversed([acc, 2])}@)

== result_range
B out.append(range(x.shape[0]))
B out.append(slice(1, x.shape[0]))

== result_argument
B out.append(x)
B out.append([x, x])

== result_argument_container
A c$ = [row(1)] || {"a": row(1)} || (row(1), 2)
B out.append(c$)

== result_state
S H = [row(1)]
B out.append(@H)
B acc = acc + @H[0]
C @H[0].add_(1)
C @H.append(1)

== result_state_tensor
S H = row(1)
B out.append(@H)
B @H.add_(1)
C @H.mul_(2)
C @H = row(2)

== result_view_of_state
S H = torch.zeros(2, 3)
B out.append(@H[0])
B @H.add_(1)
C @H.mul_(3)

== result_view_of_argument
B out.append(x[0])
B out.append(x.t())
B out.append(x.detach())

== result_same_twice
B y = acc * 2
B out.append(y)
B out.append([y, y])

== result_parameter
T p$ = nn.Parameter(torch.ones(3))
B out.append(p$)
B acc = acc + p$
C p$.data.add_(1)

== result_new_parameter
B out.append(nn.Parameter(torch.ones(2)))

== result_module
T lin$ = nn.Linear(3, 1)
B out.append(lin$)
B acc = acc + lin$(acc).detach() * 0

== result_new_module
B out.append(nn.Identity())

== result_numpy
B out.append(acc.detach().numpy())

== result_array_of_numbers
B out.append(acc.tolist())

== result_none
B out.append(None)
B out.append(())
B out.append([])

== result_constant_tensor
B out.append(torch.ones(2))
B out.append(torch.tensor([1, 2]))

== result_same_constant
T held$ = torch.ones(2)
B out.append(held$)
C held$ = torch.zeros(2)
C held$.add_(1)

== result_type
B out.append(type(acc))
B out.append(acc.dtype)
B out.append(acc.device.type)

== result_bytes
B out.append(b"ab")
B out.append(bytearray(b"ab"))
B out.append(pathlib.Path("a") / "b")
B out.append(fractions.Fraction(x.shape[0], 2))

== result_exception
B out.append(ValueError("kept"))

== result_enum
T class Kind$(enum.Enum):
T     A = 1
B out.append(Kind$.A)

== result_bound_method
T log$ = []
B out.append(log$.append)
"""
