"""State that a function reads and writes: tensors made late, counters, averages, caches."""

TEXT = """
== none_then_tensor
S H = None
B @H = acc * 2 + (@H if @H is not None else 0)
B acc = acc + @H
C @H = None
C @H = row(3)
C @H = 2.0

== zero_then_tensor
S H = 0 || 0.0 || 1.5
B @H = @H * 0.5 + acc
B acc = acc - @H
C @H = 0
C @H = 0.0
C @H = row(2)

== zero_if_false
S H = None || 0 || 0.0 || False
B @H = acc if not isinstance(@H, torch.Tensor) else @H + acc
B acc = acc + @H * 0.5
C @H = None
C @H = True

== list_then_tensor
S H = [] || {} || ()
B @H = acc if type(@H) in (list, dict, tuple) and not @H else @H * 0.5
B acc = acc + @H
C @H = []

== counter
S H = 0
B @H += 1
B acc = acc * @H
C @H = 10
C @H += 5
C @H = 0.5

== counter_branch
S H = 0
B @H = @H + 1
B acc = acc + (1 if @H % 2 else 10)
C @H = 7

== counter_only
S H = 0
B @H += 1
C @H = @{100||2.5||True}@

== counter_returned
S H = 0 || 1.5
B @H += 1
B out.append(@H)
C @H = 5

== counter_float
S H = 1.0
B @H *= 0.5
B acc = acc * @H
C @H = 4.0
C @H = 3

== counter_late_branch
S H = 0
B @H += 1
B if @H == 3:
B     acc = acc * 100
C @H = 1

== counter_as_key
S H = 0
T seen$ = {}
B @H += 1
B seen$[@H] = acc * 1.0
B acc = acc + seen$[max(seen$)]
C @H = 0
C seen$.clear()

== swap
S H = row(1)
S K = row(2)
B @H, @K = @K, @H
B acc = acc + @H * 2
C @H = row(5)
C @K = @H
C @H, @K = @K, @H

== rotate
S H = row(1)
S K = row(2)
S M = row(3)
B @H, @K, @M = @K, @M, @H
B acc = acc + @H - @M * 0.5
C @M = row(6)

== push_history
S H = row(1)
S K = row(2)
B @H, @K = acc * 1.0, @H
B acc = acc + @K
C @K = @H

== previous
S H = None
B before = @H
B @H = acc.detach()
B out.append(before)
B acc = acc if before is None else acc + before
C @H = None

== ema
S H = row(0)
B @H = 0.5 * @H + 0.5 * acc.detach()
B acc = acc - @H
C @H.zero_()
C @H = torch.ones(3)
C @H = torch.ones(3, dtype=torch.float64)

== ema_in_place
S H = torch.zeros(3)
B with torch.no_grad():
B     @H.mul_(0.5).add_(acc)
B acc = acc + @H
C @H.add_(1)
C @H = @H.clone()

== ema_lerp
S H = torch.zeros(3)
S K = 0.25
B @H.lerp_(acc.detach(), @K)
B acc = acc * 0.5 + @H
C @K = 0.5
C @K = @K * 0.5

== momentum
S H = None
S K = 0.5
B @H = acc.detach().clone() if @H is None else @H.mul_(@K).add_(acc.detach())
B acc = acc - @H
C @K = 0.25
C @H = None

== kv_cache
S H = None
B @H = acc[None] if @H is None else torch.cat([@H, acc[None]])
B acc = acc + @H.sum(0)
C @H = None
C @H = @H[-1:] if @H is not None else None

== kv_cache_window
S H = None
B @H = acc[None] if @H is None else torch.cat([@H, acc[None]])[-2:]
B acc = acc + @H.mean(0)
B out.append(@H.shape[0])
C @H = None

== kv_cache_pair
S H = None
B k, v = acc[None], acc[None] * 2
B if @H is not None:
B     k, v = torch.cat([@H[0], k]), torch.cat([@H[1], v])
B @H = (k, v)
B acc = acc + (k * v).sum(0)
C @H = None

== running_total
S H = 0
S K = 0
B @H += acc.sum()
B @K += x.shape[0]
B acc = acc + @H / @K
C @H = 0
C @K = 4

== running_item
S H = 0.0
B @H += acc.sum().item()
B acc = acc + @H
C @H = 0.0

== best
S H = None
B value = acc.abs().sum().item()
B if @H is None or value > @H:
B     @H = value
B out.append(@H)
C @H = 1.0

== truncated
S H = torch.zeros(3, requires_grad=True)
B @H = (@H.detach() * 0.5 + acc).requires_grad_()
B acc = acc + @H
C @H = torch.zeros(3)

== switch_type
S H = 1 || 2.0 || row(1) || None || "a" || True
B if @H is None:
B     acc = acc + 1
B elif isinstance(@H, torch.Tensor):
B     acc = acc + @H
B elif isinstance(@H, str):
B     acc = acc * len(@H)
B elif isinstance(@H, bool):
B     acc = -acc
B else:
B     acc = acc * @H
C @H = None
C @H = 3
C @H = 3.0
C @H = True
C @H = "abc"
C @H = row(4)
C @H = 1

== flag_once
S H = False
B if not @H:
B     @H = True
B     acc = acc + 100
C @H = False

== made_if_missing
T class Late$:
T     pass
T late$ = Late$()
B if not hasattr(late$, "h"):
B     late$.h = torch.zeros(3)
B late$.h = late$.h + acc
B acc = acc + late$.h
C if hasattr(late$, "h"):
c     del late$.h
C late$.h = row(3)

== made_if_missing_global
B if "made$" not in globals():
B     globals()["made$"] = acc * 2
B acc = acc + globals()["made$"]
C globals().pop("made$", None)
C globals()["made$"] = row(1)

== try_attribute
T class Try$:
T     pass
T try$ = Try$()
B try:
B     acc = acc + try$.h
B except AttributeError:
B     try$.h = acc * 2
C if hasattr(try$, "h"):
c     del try$.h
C try$.h = 5

== state_same_object
S H = row(1)
S K = row(2)
B @K = @H
B @H.add_(1)
B acc = acc + @K
C @H = row(3)
C @K.add_(10)

== state_is_view
S H = torch.zeros(2, 3)
S K = None
B if @K is None:
B     @K = @H[0]
B @H.add_(1)
B acc = acc + @K
C @K = None
C @H = torch.ones(2, 3)

== state_is_argument
S H = None
B @H = x
B acc = acc + @H.sum(0)
C @H = None

== state_is_result
S H = None
B @H = acc * 3
B out.append(@H)
C if @H is not None:
c     @H.detach().add_(1)

== alternate
S H = True
S K = row(1)
S M = row(2)
B acc = acc + (@K if @H else @M)
B @H = not @H
C @H = not @H

== lists_of_state
S H = [row(1), row(2), row(3)]
B @H = [h * 0.5 + acc for h in @H]
B acc = acc + sum(@H)
C @H.pop()
C @H[0] = torch.ones(3)
C @H = [row(4)]

== rotate_list
S H = [row(1), row(2), row(3)]
B @H = @H[1:] + @H[:1]
B acc = acc + @H[0]
C @H.reverse()

== dict_of_state
S H = {"a": row(1), "b": row(2)}
B @H["a"] = @H["a"] * 0.5 + acc
B @H["b"], @H["a"] = @H["a"], @H["b"]
B acc = acc + @H["a"]
C @H["a"] = torch.ones(3)
C @H["c"] = row(3)

== state_dict_copy
S H = {"n": 0, "h": torch.zeros(3)}
B @H = {**@H, "n": @H["n"] + 1, "h": @H["h"] + acc}
B acc = acc + @H["h"] * @H["n"]
C @H["n"] = 0

== nested_path
T class Inner$:
T     def __init__(self):
T         self.h, self.n = None, 0
T outer$ = Box()
T outer$.inner = Inner$()
B inner = outer$.inner
B inner.n += 1
B inner.h = acc if inner.h is None else inner.h + acc
B acc = acc + inner.h * inner.n
C outer$.inner = Inner$()
C outer$.inner.h = None
C outer$.inner.n = 3

== two_owners
T class Meter$:
T     def __init__(self):
T         self.total, self.count = 0, 0
T     def add(self, value, n=1):
T         self.total += value * n
T         self.count += n
T     def mean(self):
T         return self.total / max(self.count, 1)
T meter$, other$ = Meter$(), Meter$()
B meter$.add(acc.detach(), x.shape[0])
B other$.add(1.5)
B acc = acc + meter$.mean() + other$.mean()
C meter$.total, meter$.count = 0, 0
C meter$, other$ = other$, meter$
C other$.add(2)

== int64_state
S H = torch.zeros(3, dtype=torch.int64)
B @H = @H + (acc > 0)
B acc = acc + @H
C @H.zero_()
C @H = torch.zeros(3, dtype=torch.int32)

== bool_state
S H = torch.tensor([True, False, True])
B @H = ~@H
B acc = torch.where(@H, acc, -acc)
C @H = torch.ones(3, dtype=torch.bool)

== scalar_tensor_state
S H = torch.tensor(0.0) || torch.tensor(1)
B @H = @H + 1
B acc = acc * @H
C @H = torch.tensor(5.0)
C @H += 1
"""
