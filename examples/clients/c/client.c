/* Classify digits from C (or C++): load recorded inputs, run the model, compare what it says with
 * what graphc said when the library was made.
 *
 *     cc -O2 -Wall client.c -I../out -L../out -ldigits -lm -Wl,-rpath,'$ORIGIN/../out' -o client
 *     ./client ../out/golden [x86-64-v3 [2]]
 *
 * The level of instructions and the number of threads may be given; "-" is the best level.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

enum { MOST_DIMS = 8, MOST_TENSORS = 8 };

static const char *const DTYPES[] = {
    "bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"
};
static const int64_t WIDTHS[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void *take(int64_t bytes)
{
    void *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!data)
        fail("malloc", "no memory left");
    return data;
}

static void print_entry(const char *kind, const graphc_entry *entry)
{
    printf("%s %s: %s [", kind, entry->name, DTYPES[entry->dtype]);
    for (int32_t dim = 0; dim < entry->rank; dim++) {
        int64_t size = entry->shape[dim];
        fputs(dim ? ", " : "", stdout);
        if (size == GRAPHC_COMPUTED)
            printf("?");
        else if (size < 0)
            printf("%s", digits_size((int32_t)(-1 - size))->name);
        else
            printf("%lld", (long long)size);
    }
    printf("]\n");
}

/* A file is a line, "f32 4 10", and the elements of a float32 [4, 10]. */
static void read_tensor(const char *folder, const char *kind, int32_t number, graphc_tensor *tensor)
{
    char path[1024], dtype[8], line[256];
    snprintf(path, sizeof path, "%s/%s%d.tensor", folder, kind, (int)number);
    FILE *file = fopen(path, "rb");
    if (!file || !fgets(line, sizeof line, file))
        fail(path, "cannot be read");
    int used = 0;
    if (sscanf(line, "%7s%n", dtype, &used) != 1)
        fail(path, "is no tensor");
    tensor->dtype = 0;
    while (strcmp(dtype, DTYPES[tensor->dtype]) != 0)
        if (++tensor->dtype > GRAPHC_F64)
            fail(path, "has an unknown dtype");
    tensor->rank = 0;
    tensor->bytes = WIDTHS[tensor->dtype];
    char *rest = line + used, *end = rest;
    for (;; rest = end) {
        long long size = strtoll(rest, &end, 10);
        if (end == rest)
            break;
        if (tensor->rank == MOST_DIMS)
            fail(path, "has too many dims");
        tensor->shape[tensor->rank++] = size;
        tensor->bytes *= size;
    }
    tensor->data = take(tensor->bytes);
    if (fread(tensor->data, 1, (size_t)tensor->bytes, file) != (size_t)tensor->bytes)
        fail(path, "ends too early");
    fclose(file);
}

/* 0 where the bits are equal; else the largest difference of floats, relative to 1 and above. */
static double difference(const graphc_tensor *found, const graphc_tensor *recorded)
{
    if (found->bytes != recorded->bytes || found->dtype != recorded->dtype)
        return HUGE_VAL;
    if (memcmp(found->data, recorded->data, (size_t)found->bytes) == 0)
        return 0;
    if (found->dtype != GRAPHC_F32)
        return HUGE_VAL;
    double largest = 0;
    const float *a = (const float *)found->data, *b = (const float *)recorded->data;
    for (int64_t at = 0; at < found->bytes / 4; at++) {
        double apart = fabs((double)a[at] - b[at]) / fmax(1.0, fabs((double)b[at]));
        if (!(apart <= largest))
            largest = apart;
    }
    return largest;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        fail("usage", "client FOLDER [LEVEL [THREADS]]");
    if (digits_abi() != GRAPHC_ABI)
        fail("libdigits", "is of another ABI than digits.h");
    int32_t inputs = digits_inputs(), outputs = digits_outputs();
    if (inputs > MOST_TENSORS || outputs > MOST_TENSORS)
        fail("libdigits", "has too many inputs or outputs for this program");
    for (int32_t number = 0; number < digits_sizes(); number++) {
        const graphc_size *size = digits_size(number);
        printf("size %s: %lld to %lld\n", size->name, (long long)size->least,
               (long long)size->most);
    }
    for (int32_t number = 0; number < inputs; number++)
        print_entry("input", digits_input(number));
    for (int32_t number = 0; number < outputs; number++)
        print_entry("output", digits_output(number));

    char message[256] = "";
    graphc_options options;
    memset(&options, 0, sizeof options);
    options.abi = GRAPHC_ABI;
    options.cpu = argc > 2 && strcmp(argv[2], "-") != 0 ? argv[2] : NULL;
    options.threads = argc > 3 ? atoi(argv[3]) : 1;
    options.message = message;
    options.message_bytes = sizeof message;
    digits_context *context = NULL;
    int32_t code = digits_create(&options, &context);
    if (code != GRAPHC_OK)
        fail(digits_text(code), message);
    printf("code for %s, threads: %d\n", digits_cpu(context), (int)options.threads);

    int64_t shapes[2][MOST_TENSORS][MOST_DIMS], recorded_shape[MOST_DIMS];
    graphc_tensor given[MOST_TENSORS], made[MOST_TENSORS];
    memset(given, 0, sizeof given);
    memset(made, 0, sizeof made);
    for (int32_t number = 0; number < inputs; number++) {
        given[number].shape = shapes[0][number];
        read_tensor(argv[1], "input", number, &given[number]);
    }
    for (int32_t number = 0; number < outputs; number++)
        made[number].shape = shapes[1][number];
    code = digits_shapes(context, given, made); /* how large the outputs will be */
    if (code != GRAPHC_OK)
        fail(digits_text(code), digits_message(context));
    for (int32_t number = 0; number < outputs; number++)
        made[number].data = take(made[number].bytes);
    code = digits_run(context, given, made);
    if (code != GRAPHC_OK)
        fail(digits_text(code), digits_message(context));

    int wrong = 0;
    for (int32_t number = 0; number < outputs; number++) {
        graphc_tensor recorded;
        memset(&recorded, 0, sizeof recorded);
        recorded.shape = recorded_shape;
        read_tensor(argv[1], "output", number, &recorded);
        double apart = difference(&made[number], &recorded);
        if (apart == 0)
            printf("%s: equal to the bit\n", digits_output(number)->name);
        else
            printf("%s: %g apart\n", digits_output(number)->name, apart);
        wrong |= !(apart <= 1e-4);
        free(recorded.data);
        free(made[number].data);
    }
    for (int32_t number = 0; number < inputs; number++)
        free(given[number].data);
    digits_destroy(context);
    return wrong;
}
