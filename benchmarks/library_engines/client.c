/* Times a library of graphc's: MODEL is its name. `client LIBRARY THREADS INPUT ANSWER`: the first
 * answer goes to a file; then each line of stdin, a count, is answered by so many seconds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include HEADER

#define SPELLED_(x) #x
#define SPELLED(x) SPELLED_(x)
#define SYMBOL(part) dlsym(library, SPELLED(MODEL) part)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_all(const char *path, int64_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        exit(2);
    *bytes = ftell(file);
    rewind(file);
    void *data = aligned_alloc(64, (size_t)(*bytes + 63) / 64 * 64);
    if (!data || fread(data, 1, (size_t)*bytes, file) != (size_t)*bytes)
        exit(3);
    fclose(file);
    return data;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 1;
    double start = now();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 4;
    }
    int32_t (*create)(const graphc_options *, void **);
    int32_t (*shapes)(void *, const graphc_tensor *, graphc_tensor *);
    int32_t (*run)(void *, const graphc_tensor *, graphc_tensor *);
    const graphc_entry *(*entry)(int32_t);
    *(void **)&create = SYMBOL("_create"), *(void **)&shapes = SYMBOL("_shapes");
    *(void **)&run = SYMBOL("_run"), *(void **)&entry = SYMBOL("_input");
    graphc_options options;
    memset(&options, 0, sizeof options);
    options.abi = GRAPHC_ABI;
    options.threads = atoi(argv[2]);
    void *context;
    if (create(&options, &context) != GRAPHC_OK)
        return 5;
    double created = now();

    const graphc_entry *what = entry(0);
    int64_t sizes[8];
    memcpy(sizes, what->shape, sizeof sizes[0] * (size_t)what->rank);
    graphc_tensor given, made;
    memset(&given, 0, sizeof given), memset(&made, 0, sizeof made);
    given.data = read_all(argv[3], &given.bytes);
    given.dtype = what->dtype, given.rank = what->rank, given.shape = sizes;
    if (shapes(context, &given, &made) != GRAPHC_OK)
        return 6;
    made.data = aligned_alloc(64, (size_t)(made.bytes + 63) / 64 * 64);
    if (run(context, &given, &made) != GRAPHC_OK)
        return 7;
    FILE *answer = fopen(argv[4], "wb");
    if (!answer || fwrite(made.data, 1, (size_t)made.bytes, answer) != (size_t)made.bytes)
        return 8;
    fclose(answer);
    printf("%.9f\n", created - start);
    fflush(stdout);
    for (int count; scanf("%d", &count) == 1;) {
        for (int i = 0; i < count; i++) {
            double begin = now();
            if (run(context, &given, &made) != GRAPHC_OK)
                return 7;
            printf("%.9f ", now() - begin);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
