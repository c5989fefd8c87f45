"""The order of a program's steps: dependencies first, then little memory, then nearness.

A step that frees at least as much as it allocates runs at once (an optimizer update as soon as
its gradient is there); otherwise one that another waits for alone (what a backward pass computes
again of a layer waits until it comes to that layer), the one that is fewest steps from the inputs.
Steps that write what the user sees wait for every step that can fail.
"""

from __future__ import annotations

from ...dim import DimEnv, Size
from ..lower.index_maps import substitute_hints
from .step import Step, Storage

_WINDOW = 48  # ready steps that are compared


def schedule(steps: list[Step], env: DimEnv) -> list[Step]:
    """`steps` in an order that keeps their dependencies."""
    return _Scheduler(steps, env).run()


class _Scheduler:
    def __init__(self, steps: list[Step], env: DimEnv) -> None:
        self.hints = dict(env.hints)
        self.number = {step: i for i, step in enumerate(steps)}
        self.needs: dict[Step, set[Step]] = {}
        self.users: dict[Step, list[Step]] = {step: [] for step in steps}
        for step in steps:
            sources = {s.writer for s in step.reads if s.writer is not None} | step.after
            self.needs[step] = {s for s in sources if s in self.number and s is not step}
            for source in self.needs[step]:
                self.users[source].append(step)
        self.unread = {
            storage: len(dict.fromkeys(storage.readers))
            for step in steps for storage in step.writes
        }
        self.failing = sum(step.can_fail for step in steps)
        self.steps = steps
        self.level = self._levels()

    def _levels(self) -> dict[Step, int]:
        """How many steps each is away from the inputs."""
        level: dict[Step, int] = {}
        waiting = {step: len(self.needs[step]) for step in self.steps}
        ready = [step for step in self.steps if not waiting[step]]
        while ready:
            step = ready.pop()
            level[step] = max((level[s] for s in self.needs[step]), default=-1) + 1
            for user in self.users[step]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if len(level) != len(self.steps):
            raise ValueError("the steps of the program wait for each other")
        return level

    def run(self) -> list[Step]:
        order: list[Step] = []
        ready: list[Step] = []
        held: list[Step] = []  # visible writes before the last check
        last = [s for s in self.steps if s.last]
        for step in self.steps:
            if not self.needs[step] and not step.last:
                self._offer(step, ready, held)
        while ready or held:
            if not ready:
                raise ValueError("a step that can fail depends on a write that the user sees")
            step = self._pick(ready)
            ready.remove(step)
            order.append(step)
            self._finish(step)
            for user in self.users[step]:
                self.needs[user].discard(step)
                if not self.needs[user] and not user.last:
                    self._offer(user, ready, held)
            if not self.failing and held:
                ready += held
                held.clear()
        return order + last

    def _offer(self, step: Step, ready: list[Step], held: list[Step]) -> None:
        (held if step.visible and self.failing else ready).append(step)

    def _pick(self, ready: list[Step]) -> Step:
        window = ready
        if len(ready) > _WINDOW:
            window = sorted(ready, key=lambda s: (self.level[s], self.number[s]))[:_WINDOW]
        best, best_key = window[0], None
        for step in window:
            change = self._change(step)
            if change <= 0:
                key = (0, False, change, self.level[step], self.number[step])
            else:
                key = (1, self._early(step), self.level[step], change, self.number[step])
            if best_key is None or key < best_key:
                best, best_key = step, key
        return best

    def _early(self, step: Step) -> bool:
        """Whether all that reads what a step makes waits for something else, or makes of it what
        waits like that."""
        return self._wait(step, {step}) or (
            bool(self.users[step]) and all(
                self.needs[user] > {step} or self._wait(user, {step, user})
                for user in self.users[step]
            )
        )

    def _wait(self, step: Step, made: set[Step]) -> bool:
        """Whether all that reads what a step makes waits for more than `made`."""
        return bool(self.users[step]) and all(self.needs[u] - made for u in self.users[step])

    def _change(self, step: Step) -> int:
        """Bytes of the arena that a step takes, less those that it lets go."""
        total = sum(self._bytes(s) for s in step.writes)
        for storage in dict.fromkeys(step.reads):
            if storage.writer is not None and self.unread.get(storage) == 1:
                total -= self._bytes(storage)
        return total

    def _bytes(self, storage: Storage) -> int:
        if storage.space != "arena":
            return 0
        size: Size = storage.size
        return size if isinstance(size, int) else substitute_hints(size, self.hints)

    def _finish(self, step: Step) -> None:
        self.failing -= step.can_fail
        for storage in dict.fromkeys(step.reads):
            if storage in self.unread:
                self.unread[storage] -= 1
