"""Numbers and sizes: Python's operations on what a trace may have lifted or made symbolic."""

TEXT = """
== number_times
A n$ = 1 || 2 || 2.5 || 0 || -1.5 || True
B acc = acc * n$ + n$

== number_type
A n$ = 1 || 2 || 2.5 || True || 3.5 || 1j.real
B if type(n$) is int:
B     acc = acc + n$
B elif isinstance(n$, bool):
B     acc = -acc
B else:
B     acc = acc * n$
B out.append(type(n$).__name__)

== number_isinstance
A n$ = 1 || 2.0 || True || 3 || 4.5
B acc = acc + 1 if isinstance(n$, int) else acc * n$
B out.append(isinstance(n$, (float, numbers.Number)))

== number_match
A n$ = 0 || 1 || 2 || 2.0 || "a" || None
B match n$:
B     case 0:
B         acc = acc + 1
B     case int(k) if k > 1:
B         acc = acc * k
B     case str():
B         acc = -acc
B     case None:
B         pass
B     case _:
B         acc = acc - n$

== number_branch
A n$ = 0 || 1 || 5 || -3 || 2.5
B acc = acc * n$ if n$ > 2 else acc + n$
B if not n$:
B     acc = acc + 50

== number_returned
A n$ = 1 || 2 || 2.5 || 0.5 || True || 2 ** 70
B out.append(n$)
B out.append(n$ * 2 + 1)

== number_divmod
A n$ = 7 || -7 || 9 || 7.5
B q, r = divmod(n$, @{2||3||-2}@)
B acc = acc * q + r
B out.append((q, r, n$ // 2, n$ % 3))

== number_bits
A n$ = 1 || 6 || 13 || -4
B acc = acc * (n$ << 2) + (n$ >> 1) - (n$ & 3) + (n$ | 8) - (n$ ^ 5) + ~n$
B out.append((n$ << 1, n$ & 6, ~n$))

== number_power
A n$ = 2 || 3 || -2 || 0.5 || 5
B out.append(n$ ** 2)
B acc = acc + n$ ** @{2||3||-1||0.5}@ * 0.5 if n$ > 0 else acc

== number_power_modulo
A n$ = 2 || 3 || 10
B acc = acc + pow(n$, 3, 7)

== number_bit_length
A n$ = 1 || 2 || 300 || 2 ** 40
B acc = acc + n$.bit_length()
B out.append(n$.bit_length())

== number_hash
T table$ = {1: 2.0, 2: 3.0, 2.5: 4.0}
A n$ = 1 || 2 || 2.5 || 9 || 1.0
B acc = acc * table$.get(n$, 0.5) + (hash(n$) % 7)

== number_set
A n$ = 1 || 2 || 3 || 2.0
B acc = acc + len({n$, 2}) + (n$ in (1, 3))

== number_text
A n$ = 1 || 2 || 2.5 || True || -0.0
B out.append(str(n$) + repr(n$))
B acc = acc + len(str(n$))

== number_f_string
A n$ = 1 || 2 || 12 || 2.5
B out.append(@{f"{n$}"||f"{n$:>6}"||f"{n$!r}"||"%s" % n$||"{}".format(n$)||f"{n$:.3f}"}@)

== number_round
A n$ = 1.5 || 2.5 || 2.25 || 3 || -1.5
B acc = acc * round(n$) + round(n$, 1)
B out.append((round(n$), int(n$), float(n$), math.floor(n$), math.ceil(n$), math.trunc(n$)))

== number_int_float
A n$ = 1 || 2.75 || -2.75 || True
B acc = acc * int(n$) + float(n$)
B out.append((int(n$), float(n$), bool(n$), complex(n$)))

== number_fraction
A n$ = 1 || 2 || 0.5
B acc = acc * float(fractions.Fraction(n$) / 3 * 3)
B out.append(fractions.Fraction(n$))

== number_decimal
A n$ = 1 || 2 || 0.5
B out.append(decimal.Decimal(n$) + 1)

== number_json
A n$ = 1 || 2 || 2.5 || True || None
B out.append(json.dumps({"n": n$}))

== number_range
A n$ = 0 || 1 || 2 || 4
B for i in range(n$):
B     acc = acc + i + 1

== number_while
A n$ = 0 || 1 || 3 || 5.5
B left = n$
B while left > 1:
B     acc = acc * 0.5 + left
B     left -= 1
B out.append(left)

== number_slice
A n$ = 0 || 1 || 2 || -1 || 5
B out.append(acc[:n$])
B out.append([1, 2, 3][n$:])

== number_index
A n$ = 0 || 1 || 2 || -1
B acc = acc + acc[n$] + [10, 20, 30][n$]

== number_repeat
A n$ = 1 || 2 || 3
B out.append(torch.stack([acc] * n$))
B out.append([n$] * n$)

== number_shape
A n$ = 1 || 2 || 4
B acc = acc + torch.ones(n$, 3).sum(0) + torch.full((3,), n$)
B out.append(torch.arange(n$))

== number_big
A n$ = 1 || 2 ** 62 || 2 ** 63 || 2 ** 70 || -(2 ** 65)
B out.append(n$ * 4 + 1)
B out.append(n$ // 3)
B acc = acc + (n$ % 5)

== number_overflow
A n$ = 1 || 3000000000 || 2 ** 40
B out.append(n$ * n$ * n$)
B acc = acc + (n$ * n$ > 2 ** 63)

== number_complex
A n$ = 1j || 1 + 2j || 2 || 0.5
B out.append(n$ * 2)
B acc = acc + n$.real

== number_compare
A n$ = 1 || 2 || 2.0 || float("nan") || float("inf") || -0.0
B out.append((n$ == 2, n$ < 2, n$ != n$, n$ is None, n$ <= 1))
B acc = acc + (n$ > 1)

== number_min_max
A n$ = 1 || 4 || 2.5
B acc = acc * min(n$, 2) + max(1, n$, 3) + abs(-n$)
B out.append(max(n$, 2.5))

== number_sum
A n$ = 1 || 2 || 2.5
B acc = acc + sum([n$, n$ * 2, 1]) + math.prod([n$, 2])
B out.append(sorted([n$, 2, 1.5]))

== number_math
A n$ = 1 || 4 || 2.25 || 9.0
B acc = acc * math.sqrt(n$) + math.exp(-n$) + math.cos(n$)
B out.append(math.isqrt(int(n$)))

== number_as_integer_ratio
A n$ = 1 || 2 || 0.75
B out.append(n$.as_integer_ratio())
B out.append((n$.real, n$.imag, n$.conjugate()))

== number_is_integer
A n$ = 1.0 || 2.5 || 3.0
B acc = acc + 1 if n$.is_integer() else acc * n$
B out.append(n$.hex())

== number_in_container
A c$ = [1, 2] || [1, 2.5] || [2, 2] || [1, 2, 3]
B acc = acc * c$[0] + c$[1]
B out.append(len(c$))
B out.append(sum(c$))

== number_in_dict
A c$ = {"lr": 0.5} || {"lr": 0.25} || {"lr": 1} || {"lr": 0.5, "n": 2}
B acc = acc * c$["lr"] + c$.get("n", 0)
B out.append(c$["lr"])

== number_default
T def scaled$(value, k=2.0):
T     return value * k
A n$ = 1 || 2 || 0.5
B acc = scaled$(acc) + scaled$(acc, n$)
C scaled$.__defaults__ = (@{3.0||row(1)||5}@,)

== number_string_argument
A s$ = "a" || "b" || "" || "3" || "2.5"
B acc = acc + len(s$) + (s$ == "a") + (float(s$) if s$[:1].isdigit() else 0)

== number_none
A n$ = None || 1 || 2.0 || None
B acc = acc if n$ is None else acc * n$
B out.append(n$ is None)

== number_item
B n = acc.sum().item()
B acc = acc * (1 if n > 0 else 2)
B out.append(n > 3)

== number_tensor_argument
A t$ = torch.tensor(2) || torch.tensor(3) || torch.tensor(2.5) || 2
B acc = acc * t$
B out.append(isinstance(t$, int))

== number_index_protocol
A n$ = 0 || 1 || 2
B acc = acc + operator.index(n$) + "abc".index("abc"[n$])
B out.append(chr(65 + n$))
B out.append(bin(n$))

== number_struct
A n$ = 1 || 2 || 300
B out.append(struct.pack("<i", n$))
B out.append(n$.to_bytes(4, "little"))

== number_attribute_types
S H = 1 || 2.5 || True
B acc = acc * @H + 1
B out.append(type(@H) is float)
C @H = 2
C @H = 2.0
C @H = False
C @H = @H + 1

== number_global_use
S H = 3
B acc = acc * @H
B out.append(f'{@H}')
B out.append(@H // 2)
C @H = 5
C @H = 7.5

== number_integer_tensor
A n$ = 1 || 2 || 2.5 || True
B t = (acc > 0).long() * n$
B out.append(t)
B acc = acc + t

== number_inplace_tensor
A n$ = 1 || 2.5 || 0
B t = torch.zeros(3)
B t.add_(n$).mul_(2)
B t[0] = n$
B acc = acc + t

== number_assert
A n$ = 1 || 2 || -1
B assert n$ > 0, f"bad {n$}"
B acc = acc * n$

== number_raise
A n$ = 1 || 2 || 0
B out.append(10 // n$)
B acc = acc / n$

== size_key
T sizes$ = {2: 0.5, 3: 2.0, 4: 4.0}
B acc = acc * sizes$.get(x.shape[0], 1.0)

== size_text
B out.append(f"{x.shape[0]} {x.shape}")
B out.append(str(x.size(0)) + "%d" % x.shape[0])

== size_arithmetic
B acc = acc * x.shape[0] + len(x) - x.size(0) // 2 + x.numel() % 5
B out.append(x.shape[0] * 2)

== size_returned
B out.append(x.shape)
B out.append(x.size())
B out.append(tuple(x.shape))
B out.append((x.shape[0], x.numel(), x.dim()))

== size_reshape
B acc = acc + x.reshape(x.shape[0] * 3).sum() + x.view(-1, x.shape[0]).mean()
B out.append(x.reshape(-1)[: x.shape[0]])

== size_branch
B if x.shape[0] > 2:
B     acc = acc * 2
B elif x.shape[0] == 1:
B     acc = acc - 1

== size_loop
B for i in range(x.shape[0]):
B     acc = acc + x[i] * i

== size_iterate
B for i, line in enumerate(x):
B     acc = acc + line * i

== size_state
S H = 0
B @H += x.shape[0]
B acc = acc * @H
C @H = 0

== size_remembered
S H = None
B if @H != x.shape:
B     out.append("new")
B     @H = x.shape
C @H = None

== size_zeros
B acc = acc + torch.zeros(x.shape[0], 3).sum(0) + torch.ones_like(x).sum(0)
B out.append(torch.arange(x.shape[0]))
B out.append(torch.zeros(x.shape))

== size_division
B out.append(x.shape[0] / 2)
B out.append(divmod(x.shape[0], 2))
B acc = acc / x.shape[0] + x.sum(0) / len(x)

== size_bits
B out.append((x.shape[0] << 1, x.shape[0] & 1, x.shape[0] | 4, ~x.shape[0]))
B acc = acc + (x.shape[0] ^ 1)

== size_type
B out.append(type(x.shape[0]) is int)
B out.append(isinstance(x.shape, torch.Size))
B acc = acc + math.sqrt(x.shape[0]) + float(x.shape[0])

== size_hash
T met$ = set()
B met$.add(x.shape[0])
B acc = acc + len(met$)
C met$.clear()

== size_dict_shape
T table$ = {}
B if x.shape not in table$:
B     table$[x.shape] = x.sum(0) * 2
B acc = acc + table$[x.shape]
C table$.clear()

== size_round_up
B rows = (x.shape[0] + 3) // 4 * 4
B acc = acc + F.pad(x, (0, 0, 0, rows - x.shape[0])).sum(0)
B out.append(rows)

== size_compare
B out.append(x.shape == torch.Size([3, 3]))
B out.append(x.shape[0] == x.shape[1])
B out.append(max(x.shape))

== size_slice
B out.append(x[: x.shape[0] // 2])
B out.append(x[-1])
B acc = acc + x[x.shape[0] - 1]

== size_json
B out.append(json.dumps(list(x.shape)))
B out.append(x.shape.numel())

== size_unpack
B rows, columns = x.shape
B out.append(rows)
B acc = acc.view(1, columns).expand(rows, columns).sum(0)

== size_big
B out.append(x.shape[0] ** 40)
B out.append(x.shape[0] * 10 ** 18 * 100)

== size_numpy
B out.append(np.zeros(x.shape[0]).sum() + np.prod(x.shape))

== size_chunks
B for part in x.split(2):
B     acc = acc + part.sum(0) * part.shape[0]
B a, *rest = x.unbind(0)
B out.append(len(rest))
"""
