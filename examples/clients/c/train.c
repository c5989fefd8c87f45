/* Train a network on recorded batches from C (or C++): each loss is compared with what graphc said
 * when it trained the same network. A run can stop anywhere, and another one goes on.
 *
 *     cc -O2 -Wall train.c -I../out -L../out -ldigits_trainer -lm -Wl,-rpath,'$ORIGIN/../out' -o train
 *     ./train ../out/training state.safetensors 0 20
 *     ./train ../out/training state.safetensors 20 40
 *
 * The first run begins with a fresh network; a later one with the state's file, which both leave.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits_trainer.h"

enum { ROWS = 32, SIDE = 28, SEED = 1 };

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(int32_t code, const digits_trainer_context *context)
{
    if (code != GRAPHC_OK)
        fail(digits_trainer_text(code), digits_trainer_message(context));
}

/* A file is a line, "u8 1280 28 28", and the elements. */
static FILE *open_tensor(const char *folder, const char *name)
{
    char path[1024], line[256];
    snprintf(path, sizeof path, "%s/%s.tensor", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || !fgets(line, sizeof line, file))
        fail(path, "cannot be read");
    return file;
}

static void read_part(FILE *file, long part, void *data, size_t bytes)
{
    static const char *const TEXT = "a recorded tensor";
    rewind(file);
    for (int byte = 0; byte != '\n';)
        if ((byte = fgetc(file)) == EOF)
            fail(TEXT, "ends too early");
    if (fseek(file, part * (long)bytes, SEEK_CUR) != 0 || fread(data, 1, bytes, file) != bytes)
        fail(TEXT, "ends too early");
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("usage", "train FOLDER STATE FIRST BEHIND-THE-LAST [THREADS]");
    if (digits_trainer_abi() != GRAPHC_ABI)
        fail("libdigits_trainer", "is of another ABI than digits_trainer.h");
    char message[256] = "";
    graphc_options options;
    memset(&options, 0, sizeof options);
    options.abi = GRAPHC_ABI;
    options.threads = argc > 5 ? atoi(argv[5]) : 1;
    options.message = message;
    options.message_bytes = sizeof message;
    digits_trainer_context *context = NULL;
    int32_t code = digits_trainer_create(&options, &context);
    if (code != GRAPHC_OK)
        fail(digits_trainer_text(code), message);
    printf("code for %s, %d parts of a state, %lld bytes\n", digits_trainer_cpu(context),
           (int)digits_trainer_states(), (long long)digits_trainer_state_bytes());

    long first = atol(argv[3]), last = atol(argv[4]);
    if (first > 0)
        check(digits_trainer_state_load_file(context, argv[2]), context);
    else
        check(digits_trainer_seed(context, SEED), context);

    FILE *images = open_tensor(argv[1], "image"), *digits = open_tensor(argv[1], "digit");
    FILE *losses = open_tensor(argv[1], "loss");
    static uint8_t image[ROWS][SIDE][SIDE];
    int64_t digit[ROWS], image_shape[] = {ROWS, SIDE, SIDE}, digit_shape[] = {ROWS};
    float loss, recorded;
    graphc_tensor given[2], made = {&loss, sizeof loss, GRAPHC_F32, 0, NULL};
    memset(given, 0, sizeof given);
    given[0].data = image, given[0].bytes = sizeof image;
    given[0].dtype = GRAPHC_U8, given[0].rank = 3, given[0].shape = image_shape;
    given[1].data = digit, given[1].bytes = sizeof digit;
    given[1].dtype = GRAPHC_I64, given[1].rank = 1, given[1].shape = digit_shape;
    int wrong = 0;
    for (long step = first; step < last; step++) {
        read_part(images, step, image, sizeof image);
        read_part(digits, step, digit, sizeof digit);
        read_part(losses, step, &recorded, sizeof recorded);
        check(digits_trainer_step(context, given, &made), context);
        int same = memcmp(&loss, &recorded, sizeof loss) == 0;
        printf("step %ld: loss %.6f, %s\n", step, loss, same ? "equal to the bit" : "another");
        wrong |= !same;
    }
    fclose(images);
    fclose(digits);
    fclose(losses);
    check(digits_trainer_state_save_file(context, argv[2]), context);
    digits_trainer_destroy(context);
    return wrong;
}
