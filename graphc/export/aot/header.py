"""The C header of a library: the same functions for every model, behind the model's name."""

from __future__ import annotations

from graphc.backends.host.interface import ABI, CODES, DTYPES, MOST_THREADS, Entry, Interface

_MEANINGS = {
    "OK": "",
    "ARGUMENT": "a null or misaligned pointer, a context that is none, options of another ABI",
    "DTYPE": "a tensor has another dtype",
    "RANK": "a tensor has another number of dims",
    "SHAPE": "a fixed size is another; a named size is two; the model does not hold for these",
    "RANGE": "a named size is outside of its range, or of what the context has memory for",
    "BYTES": "a buffer is smaller than its tensor",
    "OVERLAP": "an output's memory is also an input's, or another output's",
    "MEMORY": "there is none left, or memory_bytes is too few",
    "FILE": "a file of weights or state: not there, damaged, not one of this library's",
    "VALUE": "what the model checks does not hold, such as an index that is out of range",
    "CPU": "no code for this CPU, or not for the one asked for",
    "BUSY": "another thread is inside this context",
    "THREADS": f"not between 1 and {MOST_THREADS}, or the system gives no more",
}

_TYPES = """\
#ifndef GRAPHC_LIBRARY_ABI
#define GRAPHC_LIBRARY_ABI {abi}
#define GRAPHC_ABI {abi}

enum {{ /* what functions answer */
{codes}
}};

enum {{ /* dtypes */
{dtypes}
}};

#define GRAPHC_COMPUTED INT64_MIN

typedef struct graphc_size {{ /* a size that each call may have another value of */
    const char *name;
    int64_t least, most;
}} graphc_size;

typedef struct graphc_entry {{ /* an input or an output */
    const char *name;
    int32_t dtype, rank;
    const int64_t *shape; /* >= 0: a size; -1 - s: named size s; else GRAPHC_COMPUTED */
}} graphc_entry;

typedef struct graphc_tensor {{
    void *data;      /* row-major, aligned to an element */
    int64_t bytes;   /* how much memory is there: at least the tensor's */
    int32_t dtype, rank;
    int64_t *shape;  /* inputs: the sizes. outputs: NULL, or room for them */
}} graphc_tensor;

typedef struct graphc_options {{ /* all zero but abi: the defaults */
    int32_t abi;              /* GRAPHC_ABI */
    int32_t threads;          /* 0 or 1: the calling thread alone */
    const int64_t *sizes;     /* the largest of each named size to come; NULL: as exported */
    const char *weights_path; /* of a library whose weights are in a file; */
    const void *weights;      /* or it in memory, aligned to 64, for longer than the context */
    int64_t weights_bytes;
    void *memory;             /* NULL: malloc. Else aligned to 64, and outlives the context */
    int64_t memory_bytes;
    const char *cpu;          /* NULL: the best code for this CPU; else a level, "x86-64-v3" */
    char *message;            /* NULL, or where NAME_create writes what went wrong */
    int64_t message_bytes;
}} graphc_options;

#endif
#if GRAPHC_LIBRARY_ABI != {abi}
#error "a header that was included before this one is of another ABI of graphc's libraries"
#endif
"""

_FUNCTIONS = """\
typedef struct NAME_context NAME_context;

int32_t NAME_abi(void);               /* the library's GRAPHC_ABI: compare it first */
const char *NAME_text(int32_t code);  /* "GRAPHC_RANGE"; never NULL */
int32_t NAME_inputs(void);            /* how many there are */
int32_t NAME_outputs(void);
int32_t NAME_sizes(void);
int32_t NAME_states(void);
const graphc_entry *NAME_input(int32_t number);  /* NULL beyond the last */
const graphc_entry *NAME_output(int32_t number);
const graphc_entry *NAME_state(int32_t number);
const graphc_size *NAME_size(int32_t number);

/* The memory of a context with these options (NULL: the defaults); below 0: minus a code. */
int64_t NAME_bytes(const graphc_options *options);
/* All memory is taken here. A context is used by one thread at a time. */
int32_t NAME_create(const graphc_options *options, NAME_context **context);
/* NULL is allowed. The context's threads end here, or when the library is unloaded. */
void NAME_destroy(NAME_context *context);
int32_t NAME_set_threads(NAME_context *context, int32_t threads);
const char *NAME_cpu(const NAME_context *context);  /* the level whose code runs */

/* Outputs' dtype, rank, bytes, and shape where it is not NULL, for inputs of these shapes. */
int32_t NAME_shapes(NAME_context *context, const graphc_tensor *inputs, graphc_tensor *outputs);
RUN/* Of the last call that failed, "" if the last did not; until the next call. */
const char *NAME_message(const NAME_context *context);
"""

_RUN = """\
/* Allocates nothing. After an error, no output is valid, and the context is as before. */
int32_t NAME_run(NAME_context *context, const graphc_tensor *inputs, graphc_tensor *outputs);
"""

_STEP = """\
/* One step of training: the context's state is changed. Allocates nothing. After an error, no
 * output is valid, and the state is as before. */
int32_t NAME_step(NAME_context *context, const graphc_tensor *inputs, graphc_tensor *outputs);

/* Where part `number` of the state lies, row-major, as NAME_state(number) says: to be read, or
 * written to, between calls. NULL beyond the last. Numbers (a learning rate) have no dims. */
void *NAME_state_data(NAME_context *context, int32_t number);
/* The whole state as a safetensors file: its size; into memory of that many bytes; from one that
 * was written so, or by others, with these names, dtypes and shapes in any order. What is not right
 * changes nothing. */
int64_t NAME_state_bytes(void);
int32_t NAME_state_save(NAME_context *context, void *file, int64_t bytes);
int32_t NAME_state_load(NAME_context *context, const void *file, int64_t bytes);
/* The same with a file of the system's, which is replaced when all of it is written. These take
 * memory while they run. */
int32_t NAME_state_save_file(NAME_context *context, const char *path);
int32_t NAME_state_load_file(NAME_context *context, const char *path);
/* The random numbers of the steps to come: those of torch.manual_seed(seed), and of each generator
 * of the step's own those of generator.manual_seed(seed). */
int32_t NAME_seed(NAME_context *context, uint64_t seed);
"""



def header(interface: Interface, library: str) -> str:
    """The text of NAME.h."""
    width = max(map(len, CODES))
    codes = ",\n".join(
        f"    GRAPHC_{name} = {number}" for number, name in enumerate(CODES)
    ).split("\n")
    codes = [
        line + " " * (width + 18 - len(line)) + (f"/* {_MEANINGS[name]} */" if number else "")
        for number, (line, name) in enumerate(zip(codes, CODES, strict=True))
    ]
    dtypes = ", ".join(f"GRAPHC_{name.upper()} = {i}" for i, name in enumerate(DTYPES))
    types = _TYPES.format(
        abi=ABI, codes="\n".join(line.rstrip() for line in codes), dtypes=f"    {dtypes}"
    )
    own = _RUN if interface.step is None else _STEP
    functions = _FUNCTIONS.replace("RUN", own)
    guard = f"GRAPHC_{interface.name.upper()}_H"
    return (
        f"/* {library}, made by graphc.\n{_told(interface)} */\n"
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n"
        f'{types.replace("NAME", interface.name)}\n'
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n'
        f'{functions.replace("NAME", interface.name)}\n'
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def _told(interface: Interface) -> str:
    lines = [
        f" *   {what} {number}: {_text(entry)}" for what, entries in
        (("input", interface.inputs), ("output", interface.outputs))
        for number, entry in enumerate(entries)
    ]
    states = () if interface.step is None else interface.step.states
    lines += [
        f" *   state {number}: {_text(each.entry)}" for number, each in enumerate(states)
    ]
    lines += [
        f" *   size {number}: {_plain(size.name)}, {size.least} to {size.most}"
        for number, size in enumerate(interface.sizes)
    ]
    return "\n".join(lines)


def _text(entry: Entry) -> str:
    return f"{_plain(entry.name)} {entry.dtype.name}[{', '.join(map(str, entry.shape))}]"


def _plain(text: str) -> str:
    """A name that ends no comment, and no line."""
    kept = "".join(each if each.isprintable() else "?" for each in text)
    return kept.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?")
