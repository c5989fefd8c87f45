/* Two libraries of training steps in one program, opened, used wrongly and by threads, and closed.
 * Both take x f32[batch, 4], y i64[batch] and a rate, for 2 to 64 rows, and answer with a loss.
 * Prints what does not hold, and ends with how many did not. `two_steps ROUNDS MUTANTS`. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "one.h"
#include "two.h"

enum { STEPS = 20, MOST = 64, THREADS = 4 };

typedef struct {
    void *file;
    int32_t (*create)(const graphc_options *, void **);
    void (*destroy)(void *);
    int32_t (*step)(void *, const graphc_tensor *, graphc_tensor *);
    int32_t (*seed)(void *, uint64_t);
    int64_t (*bytes)(void);
    int32_t (*save)(void *, void *, int64_t);
    int32_t (*load)(void *, const void *, int64_t);
    int32_t (*save_file)(void *, const char *);
    int32_t (*load_file)(void *, const char *);
    void *(*data)(void *, int32_t);
    int32_t (*set_threads)(void *, int32_t);
} Library;

typedef struct {
    float x[MOST][4], loss;
    int64_t y[MOST], x_shape[2], y_shape[1];
    double rate;
    graphc_tensor given[3], made;
} Call;

static int wrong;
static Library libraries[2];
static float losses[2][STEPS];
#define HOLDS(condition) \
    ((condition) ? (void)0 : (void)(wrong++, printf("line %d: %s\n", __LINE__, #condition)))
#define IS(code, call) HOLDS((call) == GRAPHC_##code)

static unsigned drawn(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

static void function(Library *library, const char *name, const char *part, void *place)
{
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, part);
    void *found = dlsym(library->file, full);
    HOLDS(found != NULL);
    memcpy(place, &found, sizeof found);
}

static Library opened(const char *path, const char *name)
{
    Library l;
    l.file = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* names must not meet even so */
    if (!l.file) {
        printf("%s\n", dlerror());
        exit(99);
    }
    function(&l, name, "create", &l.create), function(&l, name, "destroy", &l.destroy);
    function(&l, name, "step", &l.step), function(&l, name, "seed", &l.seed);
    function(&l, name, "state_bytes", &l.bytes), function(&l, name, "state_save", &l.save);
    function(&l, name, "state_load", &l.load), function(&l, name, "state_data", &l.data);
    function(&l, name, "state_save_file", &l.save_file);
    function(&l, name, "state_load_file", &l.load_file);
    function(&l, name, "set_threads", &l.set_threads);
    return l;
}

static void fill(Call *c, int rows, unsigned seed)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < 4; j++)
            c->x[i][j] = (float)(drawn(&seed) % 256) / 128 - 1;
        c->y[i] = drawn(&seed) % 3;
    }
    c->rate = 0.01, c->x_shape[0] = c->y_shape[0] = rows, c->x_shape[1] = 4;
    c->given[0] = (graphc_tensor){c->x, rows * 16, GRAPHC_F32, 2, c->x_shape};
    c->given[1] = (graphc_tensor){c->y, rows * 8, GRAPHC_I64, 1, c->y_shape};
    c->given[2] = (graphc_tensor){&c->rate, 8, GRAPHC_F64, 0, NULL};
    c->made = (graphc_tensor){&c->loss, 4, GRAPHC_F32, 0, NULL};
}

static void train(Library *l, int threads, float *found)
{
    void *context;
    graphc_options options = {.abi = GRAPHC_ABI, .threads = threads};
    Call call;
    IS(OK, l->create(&options, &context));
    IS(OK, l->seed(context, 3));
    for (int k = 0; k < STEPS; k++) {
        fill(&call, 2 + 3 * k, (unsigned)k);
        IS(OK, l->step(context, call.given, &call.made));
        found[k] = call.loss;
    }
    l->destroy(context);
}

static void *in_a_thread(void *number)
{
    int n = *(int *)number;
    float found[STEPS];
    train(&libraries[n % 2], 1 + n / 2, found);
    HOLDS(!memcmp(found, losses[n % 2], sizeof found));
    return NULL;
}

static void options_that_are_wrong(Library *l)
{
    char text[8] = "ZZZZZZZ";
    void *c;
    int64_t most = 0;
    graphc_options o = {.abi = 99, .message = text, .message_bytes = 4};
    IS(ARGUMENT, l->create(&o, &c));
    HOLDS(text[0] == 'Z'); /* options of another ABI are not read */
    o.abi = GRAPHC_ABI;
    IS(ARGUMENT, l->create(&o, NULL));
    o.threads = -1;
    IS(THREADS, l->create(&o, &c));
    HOLDS(text[0] != 'Z' && text[3] == 0 && text[4] == 'Z');
    o.threads = 1 << 30;
    IS(THREADS, l->create(&o, &c));
    o.threads = 0, o.cpu = "";
    IS(CPU, l->create(&o, &c));
    o.cpu = NULL, o.sizes = &most;
    for (int i = 0; i < 4; i++) {
        most = (int64_t[]){0, -5, 65, INT64_MAX}[i];
        IS(RANGE, l->create(&o, &c));
    }
}

static void calls_that_are_wrong(Library *l, Library *other, void *c)
{
    Call k;
    char junk[512];
    graphc_tensor *x = &k.given[0], *rate = &k.given[2];
    int64_t size = l->bytes();
    char *before = malloc((size_t)size), *after = malloc((size_t)size);
    memset(junk, 7, sizeof junk);
    fill(&k, 9, 1);
    IS(OK, l->save(c, before, size));
#define REFUSED(code, change) \
    do { \
        fill(&k, 8, 1); \
        change; \
        IS(code, l->step(c, k.given, &k.made)); \
    } while (0)
    REFUSED(RANGE, fill(&k, 9, 1)); /* the context was made for 8 */
    REFUSED(SHAPE, k.y_shape[0] = 7);
    REFUSED(RANGE, k.x_shape[0] = k.y_shape[0] = INT64_MAX);
    REFUSED(RANGE, k.x_shape[0] = k.y_shape[0] = INT64_MIN);
    REFUSED(ARGUMENT, x->data = (char *)k.x + 1);
    REFUSED(ARGUMENT, x->shape = NULL);
    REFUSED(BYTES, x->bytes = 127);
    REFUSED(BYTES, x->bytes = -1);
    REFUSED(BYTES, k.made.bytes = 3);
    REFUSED(ARGUMENT, k.made.data = (char *)&k.loss + 1);
    REFUSED(ARGUMENT, rate->data = NULL);
    REFUSED(RANK, rate->rank = 1);
    REFUSED(DTYPE, rate->dtype = 77);
    REFUSED(OVERLAP, k.made.data = k.x);
    REFUSED(OVERLAP, k.made.data = l->data(c, 0));
    REFUSED(VALUE, k.y[3] = 3);
    REFUSED(VALUE, k.y[3] = INT64_MIN);
    fill(&k, 8, 1);
    IS(ARGUMENT, l->step(c, NULL, &k.made));
    IS(ARGUMENT, l->step(c, k.given, NULL));
    IS(ARGUMENT, l->step(NULL, k.given, &k.made));
    IS(ARGUMENT, l->step((char *)c + 1, k.given, &k.made));
    IS(ARGUMENT, l->step((void *)(((uintptr_t)junk + 63) / 64 * 64), k.given, &k.made));
    IS(ARGUMENT, other->step(c, k.given, &k.made));
    IS(ARGUMENT, other->load(c, before, size));
    IS(THREADS, l->set_threads(c, -3));
    IS(BYTES, l->save(c, after, size - 1));
    IS(ARGUMENT, l->save(c, NULL, size));
    for (int i = 0; i < 4; i++) {
        const char *path = (const char *[]){"", "/dev/zero", "/dev/null", "/"}[i];
        IS(FILE, l->load_file(c, path));
    }
    IS(FILE, l->save_file(c, ""));
    IS(OK, l->save(c, after, size));
    HOLDS(!memcmp(before, after, (size_t)size));
    free(before), free(after);
}

/* Files with some bytes changed, and some shorter: each lies in memory of its own size. */
static void damaged_files(Library *l, void *c, int mutants, unsigned seed)
{
    int64_t size = l->bytes();
    char *whole = malloc((size_t)size), *now = malloc((size_t)size);
    int refused = 0;
    IS(OK, l->save(c, whole, size));
    for (int m = 0; m < mutants; m++) {
        int64_t length = m % 5 ? size : drawn(&seed) % size;
        char *file = malloc(length ? (size_t)length : 1);
        memcpy(file, whole, (size_t)length);
        for (int i = 0; length && i <= m % 4; i++)
            file[drawn(&seed) % (m % 2 ? length : length < 900 ? length : 900)] =
                m % 3 ? "0123456789{}[]\",:\\u-"[drawn(&seed) % 20] : (char)drawn(&seed);
        int32_t code = l->load(c, file, length);
        if (code != GRAPHC_OK) {
            refused++;
            HOLDS(code == GRAPHC_FILE);
            IS(OK, l->save(c, now, size));
            HOLDS(!memcmp(whole, now, (size_t)size));
        }
        IS(OK, l->load(c, whole, size));
        free(file);
    }
    HOLDS(refused > mutants / 2);
    free(whole), free(now);
}

static void in_a_child(Library *l, void *c)
{
    Call k;
    fill(&k, 8, 2);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int32_t code = l->set_threads(c, 2);
        code |= l->step(c, k.given, &k.made);
        l->destroy(c);
        _exit(code != GRAPHC_OK);
    }
    int status;
    waitpid(child, &status, 0);
    HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, mutants = argc > 2 ? atoi(argv[2]) : 100;
    for (int round = 0; round < rounds; round++) {
        libraries[0] = opened("./libone.so", "one"), libraries[1] = opened("./libtwo.so", "two");
        pthread_t threads[THREADS];
        int numbers[THREADS];
        for (int i = 0; i < 2; i++)
            train(&libraries[i], 1, losses[i]);
        HOLDS(memcmp(losses[0], losses[1], sizeof losses[0]) != 0);
        for (int i = 0; i < THREADS; i++)
            numbers[i] = i, pthread_create(&threads[i], NULL, in_a_thread, &numbers[i]);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 2; i++) {
            Library *l = &libraries[i];
            int64_t most = 8;
            graphc_options options = {.abi = GRAPHC_ABI, .threads = 2, .sizes = &most};
            void *context;
            options_that_are_wrong(l);
            IS(OK, l->create(&options, &context));
            calls_that_are_wrong(l, &libraries[1 - i], context);
            damaged_files(l, context, mutants, (unsigned)round);
            in_a_child(l, context);
            l->destroy(context), l->destroy(NULL);
        }
        dlclose(libraries[0].file), dlclose(libraries[1].file);
    }
    return wrong;
}
