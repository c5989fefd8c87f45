/* libdigits for JavaScript, by Node-API, whose header comes with Node and whose ABI is stable:
 *
 *     cc -O2 -Wall -shared -fPIC addon.c -I/usr/include/node -I../out -L../out -ldigits \
 *        -Wl,-rpath,'$ORIGIN/../out' -o digits.node
 */
#include <node_api.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

enum { MOST_DIMS = 8, MOST_TENSORS = 8 };

/* Throws what Node-API refuses; the functions below return where something was thrown. */
#define TRY(call)                                                        \
    do {                                                                 \
        if ((call) != napi_ok) {                                         \
            const napi_extended_error_info *why = NULL;                  \
            bool thrown = false;                                         \
            napi_get_last_error_info(env, &why);                         \
            napi_is_exception_pending(env, &thrown);                     \
            if (!thrown)                                                 \
                napi_throw_error(env, NULL, why && why->error_message    \
                                                ? why->error_message     \
                                                : "Node-API refuses");   \
            return NULL;                                                 \
        }                                                                \
    } while (0)

static napi_value refuse(napi_env env, int32_t code, const char *message)
{
    napi_throw_error(env, digits_text(code), message);
    return NULL;
}

/* {name, dtype, shape}; a size is a number, a name, or null where it is computed */
static napi_value describe(napi_env env, const graphc_entry *entry)
{
    napi_value found, value, shape;
    TRY(napi_create_object(env, &found));
    TRY(napi_create_string_utf8(env, entry->name, NAPI_AUTO_LENGTH, &value));
    TRY(napi_set_named_property(env, found, "name", value));
    TRY(napi_create_int32(env, entry->dtype, &value));
    TRY(napi_set_named_property(env, found, "dtype", value));
    TRY(napi_create_array_with_length(env, (size_t)entry->rank, &shape));
    for (int32_t dim = 0; dim < entry->rank; dim++) {
        int64_t size = entry->shape[dim];
        if (size == GRAPHC_COMPUTED)
            TRY(napi_get_null(env, &value));
        else if (size < 0)
            TRY(napi_create_string_utf8(env, digits_size((int32_t)(-1 - size))->name,
                                        NAPI_AUTO_LENGTH, &value));
        else
            TRY(napi_create_int64(env, size, &value));
        TRY(napi_set_element(env, shape, (uint32_t)dim, value));
    }
    TRY(napi_set_named_property(env, found, "shape", shape));
    return found;
}

static napi_value list(napi_env env, int32_t count, const graphc_entry *(*entry)(int32_t))
{
    napi_value found;
    TRY(napi_create_array_with_length(env, (size_t)count, &found));
    for (int32_t number = 0; number < count; number++) {
        napi_value one = describe(env, entry(number));
        if (!one)
            return NULL;
        TRY(napi_set_element(env, found, (uint32_t)number, one));
    }
    return found;
}

static napi_value inputs(napi_env env, napi_callback_info info)
{
    (void)info;
    return list(env, digits_inputs(), digits_input);
}

static napi_value outputs(napi_env env, napi_callback_info info)
{
    (void)info;
    return list(env, digits_outputs(), digits_output);
}

static void destroy(napi_env env, void *context, void *hint)
{
    (void)env;
    (void)hint;
    digits_destroy((digits_context *)context);
}

/* create(level?) -> a context, which ends with its last reference */
static napi_value create(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value argument, found;
    TRY(napi_get_cb_info(env, info, &count, &argument, NULL, NULL));
    char message[256] = "", level[64] = "";
    graphc_options options;
    memset(&options, 0, sizeof options);
    options.abi = GRAPHC_ABI;
    options.message = message;
    options.message_bytes = sizeof message;
    napi_valuetype kind = napi_undefined;
    if (count)
        TRY(napi_typeof(env, argument, &kind));
    if (kind != napi_undefined) {
        TRY(napi_get_value_string_utf8(env, argument, level, sizeof level, NULL));
        options.cpu = level;
    }
    digits_context *context = NULL;
    int32_t code = digits_create(&options, &context);
    if (code != GRAPHC_OK)
        return refuse(env, code, message);
    if (napi_create_external(env, context, destroy, NULL, &found) != napi_ok) {
        digits_destroy(context);
        return refuse(env, GRAPHC_MEMORY, "no object for the context");
    }
    return found;
}

static napi_value cpu(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value argument, found;
    void *context;
    TRY(napi_get_cb_info(env, info, &count, &argument, NULL, NULL));
    TRY(napi_get_value_external(env, argument, &context));
    TRY(napi_create_string_utf8(env, digits_cpu((digits_context *)context), NAPI_AUTO_LENGTH,
                                &found));
    return found;
}

/* {dtype, shape, data: Uint8Array} */
static bool read_input(napi_env env, napi_value from, graphc_tensor *tensor, int64_t *shape)
{
    napi_value value;
    napi_typedarray_type kind;
    uint32_t rank;
    size_t bytes;
    if (napi_get_named_property(env, from, "dtype", &value) != napi_ok ||
        napi_get_value_int32(env, value, &tensor->dtype) != napi_ok ||
        napi_get_named_property(env, from, "data", &value) != napi_ok ||
        napi_get_typedarray_info(env, value, &kind, &bytes, &tensor->data, NULL, NULL) != napi_ok ||
        kind != napi_uint8_array || napi_get_named_property(env, from, "shape", &value) != napi_ok ||
        napi_get_array_length(env, value, &rank) != napi_ok || rank > MOST_DIMS)
        return false;
    for (uint32_t dim = 0; dim < rank; dim++) {
        napi_value size;
        if (napi_get_element(env, value, dim, &size) != napi_ok ||
            napi_get_value_int64(env, size, &shape[dim]) != napi_ok)
            return false;
    }
    tensor->bytes = (int64_t)bytes;
    tensor->rank = (int32_t)rank;
    tensor->shape = shape;
    return true;
}

/* run(context, [input ...]) -> [output ...] */
static napi_value run(napi_env env, napi_callback_info info)
{
    size_t count = 2;
    napi_value arguments[2], found;
    void *context;
    uint32_t inputs_given;
    TRY(napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
    TRY(napi_get_value_external(env, arguments[0], &context));
    TRY(napi_get_array_length(env, arguments[1], &inputs_given));
    if ((int32_t)inputs_given != digits_inputs() || inputs_given > MOST_TENSORS ||
        digits_outputs() > MOST_TENSORS)
        return refuse(env, GRAPHC_ARGUMENT, "another number of inputs");
    graphc_tensor given[MOST_TENSORS], made[MOST_TENSORS];
    int64_t shapes[2][MOST_TENSORS][MOST_DIMS];
    memset(given, 0, sizeof given);
    memset(made, 0, sizeof made);
    for (uint32_t number = 0; number < inputs_given; number++) {
        napi_value one;
        TRY(napi_get_element(env, arguments[1], number, &one));
        if (!read_input(env, one, &given[number], shapes[0][number]))
            return refuse(env, GRAPHC_ARGUMENT, "an input is {dtype, shape, data: Uint8Array}");
    }
    for (int32_t number = 0; number < digits_outputs(); number++)
        made[number].shape = shapes[1][number];
    int32_t code = digits_shapes((digits_context *)context, given, made);
    if (code != GRAPHC_OK)
        return refuse(env, code, digits_message((digits_context *)context));
    TRY(napi_create_array_with_length(env, (size_t)digits_outputs(), &found));
    for (int32_t number = 0; number < digits_outputs(); number++) {
        napi_value one = describe(env, digits_output(number)), memory, value, shape;
        if (!one)
            return NULL;
        size_t bytes = (size_t)made[number].bytes;
        TRY(napi_create_arraybuffer(env, bytes, &made[number].data, &memory));
        TRY(napi_create_typedarray(env, napi_uint8_array, bytes, memory, 0, &value));
        TRY(napi_set_named_property(env, one, "data", value));
        TRY(napi_create_array_with_length(env, (size_t)made[number].rank, &shape));
        for (int32_t dim = 0; dim < made[number].rank; dim++) {
            TRY(napi_create_int64(env, made[number].shape[dim], &value));
            TRY(napi_set_element(env, shape, (uint32_t)dim, value));
        }
        TRY(napi_set_named_property(env, one, "shape", shape));
        TRY(napi_set_element(env, found, (uint32_t)number, one));
    }
    code = digits_run((digits_context *)context, given, made);
    if (code != GRAPHC_OK)
        return refuse(env, code, digits_message((digits_context *)context));
    return found;
}

static napi_value begin(napi_env env, napi_value exports)
{
    static const struct { const char *name; napi_callback function; } functions[] = {
        {"inputs", inputs}, {"outputs", outputs}, {"create", create}, {"cpu", cpu}, {"run", run},
    };
    if (digits_abi() != GRAPHC_ABI) {
        napi_throw_error(env, NULL, "libdigits is of another ABI than digits.h");
        return NULL;
    }
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        napi_value function;
        TRY(napi_create_function(env, functions[at].name, NAPI_AUTO_LENGTH,
                                 functions[at].function, NULL, &function));
        TRY(napi_set_named_property(env, exports, functions[at].name, function));
    }
    return exports;
}

NAPI_MODULE(NODE_GYP_MODULE_NAME, begin)
