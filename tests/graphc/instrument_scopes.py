"""Functions of the corpus about closures, globals and generators."""
# ruff: noqa

from contextlib import suppress

COUNTER = 0
PAIRS = {"b": 2, "a": 1}


def closures():
    count, names = 0, []

    def bump(by=1, *, times=1):
        nonlocal count
        count += by * times
        names.append(count)
        return lambda: (count, by)

    first, second = bump(), bump(2, times=3)
    return count, names, first(), second()


def unbound_closure():
    def read():
        return later

    if not PAIRS:
        later = 1
    return read()


def deleted_closure():
    value = 1

    def drop():
        nonlocal value
        before = value
        value = 2
        del value
        return before

    return drop(), drop()


def globals_changed():
    global COUNTER, FRESH
    COUNTER += 1
    FRESH = COUNTER
    before = FRESH
    del FRESH
    COUNTER -= 1
    with suppress(NameError):
        FRESH
    return before, len(PAIRS)


def unknown_global():
    return nowhere_to_be_found


def unbound_local():
    if COUNTER > 100:
        value = 1
    return value


def generators():
    def numbers(count):
        got = []
        for number in range(count):
            got.append((yield number))
        return got

    def delegate():
        result = yield from numbers(3)
        yield result
        yield from [10, 20]
        with suppress(ValueError):
            yield from numbers(2)
        yield "end"

    generator = delegate()
    seen = [next(generator), generator.send("a"), generator.send("b"), generator.send("c")]
    seen += [next(generator), next(generator), next(generator)]
    seen.append(generator.throw(ValueError("thrown")))
    return seen, list(generator), sum(n * n for n in numbers(4))


def closed_generator():
    log = []

    def run():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    generator = run()
    next(generator)
    generator.close()
    return log
