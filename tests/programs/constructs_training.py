"""Training, in-place writes, aliasing, modules and optimizers."""

TEXT = """
== backward
T p$ = nn.Parameter(torch.ones(3))
B p$.grad = None
B (p$ * acc.detach()).sum().backward()
B acc = acc + p$.grad
C p$.data.mul_(0.5)
C p$.requires_grad_(not p$.requires_grad)
C p$ = nn.Parameter(torch.zeros(3))

== backward_accumulates
T p$ = nn.Parameter(torch.ones(3))
B (p$ * acc.detach() * p$).sum().backward()
B acc = acc.detach() + p$.grad
C p$.grad = None
C p$.grad.zero_() if p$.grad is not None else None
C p$.grad = torch.ones(3)

== backward_outside_history
T p$ = nn.Parameter(torch.ones(3))
T loss$ = (p$ * 2).sum()
B try:
B     (loss$ * 2 + acc.detach().sum()).backward()
B except RuntimeError:
B     out.append("freed")
C loss$ = (p$ * p$).sum()
C p$.grad = None

== sgd
T w$ = nn.Linear(3, 1)
T nn.init.constant_(w$.weight, 0.5)
T opt$ = torch.optim.SGD(w$.parameters(), lr=0.125, momentum=@{0.5||0.0}@)
B opt$.zero_grad()
B loss = w$(acc.detach()).square().mean() * 0.01
B loss.backward()
B opt$.step()
B out.append(loss.detach())
C opt$.param_groups[0]["lr"] = 0.25
C opt$.param_groups[0]["lr"] *= 0.5
C opt$.param_groups[0]["momentum"] = 0.25
C opt$.param_groups[0]["weight_decay"] = 0.5
C opt$ = torch.optim.SGD(w$.parameters(), lr=0.5)
C w$.bias.requires_grad_(False)

== adam
T w$ = nn.Parameter(torch.ones(3))
T opt$ = torch.optim.@{Adam||AdamW}@([w$], lr=0.125)
B loss = (w$ * acc.detach()).sum()
B opt$.zero_grad()
B loss.backward()
B opt$.step()
C opt$.param_groups[0]["lr"] = 0.25
C opt$.param_groups[0]["betas"] = (0.5, 0.75)
C opt$.param_groups[0]["eps"] = 0.5
C opt$.state.clear()
C opt$.load_state_dict(opt$.state_dict())

== lr_inside
T w$ = nn.Parameter(torch.ones(3))
T opt$ = torch.optim.SGD([w$], lr=0.5)
S H = 0
B @H += 1
B for group in opt$.param_groups:
B     group["@{lr||weight_decay}@"] = 0.5 / @H
B opt$.zero_grad()
B (w$ * acc.detach()).sum().backward()
B opt$.step()
C @H = 4

== scheduler
T w$ = nn.Parameter(torch.ones(3))
T opt$ = torch.optim.SGD([w$], lr=0.5)
T sched$ = torch.optim.lr_scheduler.@{StepLR(opt$, 2, 0.5)||ExponentialLR(opt$, 0.5)}@
B opt$.zero_grad()
B (w$ * acc.detach()).sum().backward()
B opt$.step()
B sched$.step()
B out.append(sched$.get_last_lr()[0])
C sched$.step()
C opt$.param_groups[0]["lr"] = 1.0

== autograd_grad
T p$ = nn.Parameter(torch.ones(3))
B g, = torch.autograd.grad((p$ * p$ * acc.detach()).sum(), [p$])
B acc = acc + g
C p$.data.add_(1)

== hand_step
T p$ = nn.Parameter(torch.ones(3))
S H = 0.5
B p$.grad = None
B (p$ * acc.detach()).sum().backward()
B with torch.no_grad():
B     p$ -= @H * p$.grad
C @H = 0.25
C p$.data = torch.zeros(3)

== batch_norm
T bn$ = nn.BatchNorm1d(3)
B acc = acc + bn$(torch.cat([x, x + 1])).sum(0)
C bn$.eval()
C bn$.train()
C bn$.momentum = @{None||0.5}@
C bn$.eps = 0.5
C bn$.reset_running_stats()

== dropout
T drop$ = nn.Dropout(0.5)
B acc = acc + drop$(x).sum(0)
C drop$.eval()
C drop$.train()
C drop$.p = 0.25

== module_buffer
T class Buf$(nn.Module):
T     def __init__(self):
T         super().__init__()
T         self.register_buffer("h", torch.zeros(3))
T         self.register_buffer("late", None)
T         self.n = 0
T     def forward(self, v):
T         self.n += 1
T         self.h = self.h * 0.5 + v.detach()
T         if self.late is None:
T             self.late = torch.ones(3)
T         self.late += 1
T         return v + self.h * self.n + self.late
T buf$ = Buf$()
B acc = buf$(acc)
C buf$.h.zero_()
C buf$.late = None
C buf$.load_state_dict({"h": torch.ones(3)}, strict=False)
C buf$.register_buffer("h", torch.ones(3))
C buf$.n = 3

== module_list
T seq$ = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
T [nn.init.constant_(p, 0.25) for p in seq$.parameters()]
B acc = seq$(acc)
C seq$[1] = nn.Tanh()
C seq$.append(nn.Sigmoid())
C seq$[0].weight.data.mul_(2)
C seq$[0].bias = None
C del seq$[-1]

== module_attributes
T class Scale$(nn.Module):
T     def __init__(self):
T         super().__init__()
T         self.k, self.on, self.extra = 2.0, True, None
T         self.w = nn.Parameter(torch.ones(3))
T     def forward(self, v):
T         v = v * self.k if self.on else v + self.k
T         v = v if self.extra is None else v + self.extra
T         return v * self.w + (1 if self.training else 2)
T scale$ = Scale$()
B acc = scale$(acc)
C scale$.k = @{3.0||4||row(1)}@
C scale$.on = not scale$.on
C scale$.extra = row(2)
C scale$.eval()
C scale$.w = nn.Parameter(torch.zeros(3))
C Scale$.forward = lambda self, v: v * 9

== module_hooks
T hooked$ = nn.Linear(3, 3)
T nn.init.constant_(hooked$.weight, 0.25)
T handles$ = []
B acc = hooked$(acc)
C handles$.append(hooked$.register_forward_hook(lambda m, i, o: o * 2))
C handles$.append(hooked$.register_forward_pre_hook(lambda m, i: (i[0] + 1,)))
C handles$.pop().remove() if handles$ else None

== hook_state
T ran$ = []
T hooked$ = nn.Identity()
T hooked$.register_forward_hook(lambda m, i, o: ran$.append(len(ran$)))
B acc = hooked$(acc) + len(ran$)
C ran$.clear()

== tensor_hook
T p$ = nn.Parameter(torch.ones(3))
T handles$ = []
B p$.grad = None
B (p$ * acc.detach()).sum().backward()
B acc = acc + p$.grad
C handles$.append(p$.register_hook(lambda g: g * 2))
C handles$.pop().remove() if handles$ else None

== parametrize
T lin$ = nn.Linear(3, 3)
T nn.init.constant_(lin$.weight, 0.25)
T class Twice$(nn.Module):
T     def forward(self, w):
T         return w * 2
B acc = lin$(acc)
C torch.nn.utils.parametrize.register_parametrization(lin$, "weight", Twice$())
C lin$.bias.data.add_(1)

== requires_grad_flip
T p$ = nn.Parameter(torch.ones(3))
B acc = acc + p$
B out.append((p$ * 2).requires_grad)
C p$.requires_grad_(False)
C p$.requires_grad_(True)

== requires_grad_inside
T p$ = torch.ones(3)
B out.append(p$.requires_grad)
B p$.requires_grad_(not p$.requires_grad)
B acc = acc + p$.detach()

== requires_grad_argument
A w$ = row(1) || row(1).requires_grad_() || row(2).requires_grad_()
B acc = acc + w$ * 2
B out.append(acc.requires_grad)

== grad_of_argument
A w$ = row(1).requires_grad_() || row(2).requires_grad_()
B (w$ * w$).sum().backward()
B acc = acc + w$.grad

== grad_attribute
T p$ = nn.Parameter(torch.ones(3))
B acc = acc + (p$.grad if p$.grad is not None else 1)
C p$.grad = row(1)
C p$.grad = None
C (p$ * 2).sum().backward()

== grad_written
T p$ = nn.Parameter(torch.ones(3))
B p$.grad = acc.detach() * 2
C p$.grad = None

== data_attribute
T p$ = nn.Parameter(torch.ones(3))
B p$.data = p$.data * 0.5 + acc.detach()
B acc = acc + p$.detach()
C p$.data = torch.ones(3)
C p$.data.zero_()

== detach_shares
S H = torch.zeros(3)
B @H.detach().add_(1)
B acc = acc + @H
C @H.detach().mul_(2)

== inplace_argument
B x.mul_(0.5) if not x.requires_grad else None
B acc = acc + x.sum(0)

== inplace_view_of_argument
B x.detach()[0].add_(1)
B acc = acc + x.detach().sum(0)

== inplace_result
B y = acc * 2
B z = y[:2]
B z.add_(1)
B acc = acc + y

== aliased_arguments
T both$ = row(1)
A a$ = both$ || row(1) || both$
A b$ = both$ || row(2) || a_same$
T a_same$ = both$
B out.append(a$ is b$)
B a$.add_(1)
B acc = acc + a$ * b$
C both$ = row(3)

== aliased_views
T base$ = torch.zeros(6)
A a$ = base$[:3] || base$[3:] || row(1)
A b$ = base$[:3] || base$[2:5] || row(2)
B a$.add_(1)
B acc = acc + b$ * 2
C base$.zero_()

== argument_is_state
T held$ = row(1)
A a$ = held$ || row(2)
B held$.add_(1)
B acc = acc + a$
C held$.zero_()
C held$ = row(3)

== state_item_write
S H = torch.zeros(3)
S K = 0
B @H[@K] = acc[0].detach()
B @K = (@K + 1) % 3
B acc = acc + @H
C @K = 2
C @H.zero_()

== clip
T p$ = nn.Parameter(torch.ones(3))
B p$.grad = None
B (p$ * acc.detach()).sum().backward()
B norm = nn.utils.clip_grad_norm_([p$], 1.0)
B out.append(norm.detach())
C p$.data.mul_(2)

== custom_function
T class Twice$(torch.autograd.Function):
T     calls = 0
T     @staticmethod
T     def forward(ctx, v):
T         Twice$.calls += 1
T         return v * 2
T     @staticmethod
T     def backward(ctx, g):
T         return g * factor$
T factor$ = 3.0
A w$ = row(1).requires_grad_() || row(2).requires_grad_()
B Twice$.apply(w$).sum().backward()
B acc = acc + w$.grad
C factor$ = 5.0
C Twice$.calls = 10

== meter
T class Meter$:
T     def __init__(self):
T         self.sum, self.n, self.log = 0.0, 0, []
T     def update(self, v, n):
T         self.sum += v * n
T         self.n += n
T         self.log.append(self.sum / self.n)
T meter$ = Meter$()
B meter$.update(@{acc.sum().item()||acc.detach().sum()||1.5}@, x.shape[0])
B out.append(meter$.log[-1])
C meter$.n = 1
C meter$.log.clear()

== early_stopping
T class Stopper$:
T     best, bad, stop = None, 0, False
T     def __call__(self, loss):
T         if self.best is None or loss < self.best:
T             self.best, self.bad = loss, 0
T         else:
T             self.bad += 1
T         self.stop = self.bad >= 2
T stopper$ = Stopper$()
B stopper$(@{float(acc.sum())||acc.detach().sum()}@)
B out.append(stopper$.stop)
C stopper$.best = None
C stopper$.best = -100.0

== detached_hidden
T cell$ = nn.RNNCell(3, 3)
T [nn.init.constant_(p, 0.25) for p in cell$.parameters()]
S H = None
B @H = cell$(acc[None], @H)
B acc = acc + @H[0]
B @H = @H.detach()
C @H = None
C @H = torch.zeros(1, 3)

== embedding
T emb$ = nn.Embedding(5, 3)
T nn.init.constant_(emb$.weight, 0.5)
A ids$ = torch.tensor([0, 1]) || torch.tensor([2, 2, 4]) || torch.tensor([3])
B acc = acc + emb$(ids$).sum(0)
C emb$.weight.data[2] = 7

== swa
T model$ = nn.Linear(3, 1)
T nn.init.constant_(model$.weight, 0.5)
T shadow$ = copy.deepcopy(model$)
B with torch.no_grad():
B     for a, b in zip(shadow$.parameters(), model$.parameters()):
B         a.mul_(0.5).add_(b, alpha=0.5)
B acc = acc + shadow$(acc.detach())
C model$.weight.data.add_(1)

== train_eval_inside
T bn$ = nn.Dropout(0.5)
B bn$.eval()
B acc = acc + bn$(acc)
B bn$.train()
B out.append(bn$.training)

== freeze_inside
T w$ = nn.Linear(3, 1)
T nn.init.constant_(w$.weight, 0.5)
S H = 0
B @H += 1
B w$.weight.requires_grad_(@H % 2 == 0)
B out.append(w$(acc).requires_grad)
C @H = 0

== zero_grad_kinds
T w$ = nn.Linear(3, 1)
T nn.init.constant_(w$.weight, 0.5)
A none$ = True || False
B w$.zero_grad(set_to_none=none$)
B out.append(w$.weight.grad is None)
B w$(acc.detach()).sum().backward()
C w$.zero_grad()

== state_dict_inside
T w$ = nn.Linear(3, 1)
T nn.init.constant_(w$.weight, 0.5)
B out.append(list(w$.state_dict()))
B w$.load_state_dict({k: v * 0.5 for k, v in w$.state_dict().items()})
B acc = acc + w$(acc).detach()

== parameters_loop
T w$ = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
T [nn.init.constant_(p, 0.25) for p in w$.parameters()]
B for name, p in w$.named_parameters():
B     acc = acc + p.sum() if "weight" in name else acc
B out.append(sum(p.numel() for p in w$.parameters() if p.requires_grad))
C w$[0].weight.requires_grad_(False)
C w$[0].weight.data.add_(1)
"""
