/* The part of cuBLASLt that graphc calls, on the host's memory. Sizes, pitches and types are looked
   at as the library does; descriptors that are still there are counted. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int compute, scale; int32_t transposed[2]; } Operation;
typedef struct { int type; uint64_t rows, columns; int64_t pitch; int32_t batch; int64_t stride; } Layout;
typedef struct { uint64_t workspace; uint32_t aligned[4]; } Preference;
typedef struct { uint64_t data[8]; } Algorithm;
typedef struct { Algorithm algo; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;

enum { INVALID = 7, NOT_SUPPORTED = 15 };
enum { PROPOSALS = 3 };  /* of the heuristic */
static int living, asked, refuse, taken;
static uint32_t aligned[4];

int fake_living(void) { return living; }
int fake_asked(void) { return asked; }
int fake_taken(void) { return taken; }
void fake_refuse(int yes) { refuse = yes; }
uint32_t fake_aligned(int side) { return aligned[side]; }

size_t cublasLtGetVersion(void) { return 120900; }
const char* cublasLtGetStatusString(int status) {
  return status == INVALID ? "an invalid value" : "not supported";
}
static int make(void** made, size_t size) {
  *made = calloc(1, size);
  living++;
  return 0;
}
static int give_back(void* made) {
  free(made);
  living--;
  return 0;
}
int cublasLtCreate(void** handle) { return make(handle, 8); }
int cublasLtDestroy(void* handle) { return give_back(handle); }
int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  make(made, sizeof(Operation));
  ((Operation*)*made)->compute = compute;
  ((Operation*)*made)->scale = scale;
  return 0;
}
int cublasLtMatmulDescDestroy(void* made) { return give_back(made); }
int cublasLtMatmulDescSetAttribute(Operation* o, int name, const void* value, size_t size) {
  if ((name != 3 && name != 4) || size != 4) return INVALID;
  memcpy(&o->transposed[name - 3], value, size);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
  if (pitch < (int64_t)rows) return INVALID;
  make(made, sizeof(Layout));
  Layout layout = {type, rows, columns, pitch, 1, 0};
  *(Layout*)*made = layout;
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* made) { return give_back(made); }
int cublasLtMatrixLayoutSetAttribute(Layout* l, int name, const void* value, size_t size) {
  if (name == 5 && size == 4) memcpy(&l->batch, value, size);
  else if (name == 6 && size == 8) memcpy(&l->stride, value, size);
  else return INVALID;
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** made) { return make(made, sizeof(Preference)); }
int cublasLtMatmulPreferenceDestroy(void* made) { return give_back(made); }
int cublasLtMatmulPreferenceSetAttribute(Preference* p, int name, const void* value, size_t size) {
  if (name == 1 && size == 8) memcpy(&p->workspace, value, size);
  else if (name >= 5 && name <= 8 && size == 4) memcpy(&p->aligned[name - 5], value, size);
  else return INVALID;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(
    void* handle, Operation* o, Layout* a, Layout* b, Layout* c, Layout* d, Preference* p, int most,
    Heuristic* found, int* count) {
  asked++;
  memcpy(aligned, p->aligned, sizeof aligned);
  *count = refuse ? 0 : most < PROPOSALS ? most : PROPOSALS;
  for (int n = 0; n < *count; n++) {
    memset(&found[n], 0, sizeof *found);
    found[n].algo.data[0] = 0xa190;
    for (int side = 0; side < 3; side++) found[n].algo.data[1 + side] = p->aligned[side];
    found[n].algo.data[4] = n;
    found[n].workspace = p->workspace / 2;
  }
  return 0;
}

static float half(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float x = exponent == 0 ? ldexpf(fraction, -24)
    : exponent == 31 ? (fraction ? NAN : INFINITY) : ldexpf(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -x : x;
}
static uint16_t to_half(float x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  x = fabsf(x);
  if (isnan(x)) return 0x7e00;
  if (x >= 65520) return sign | 0x7c00;
  int exponent;
  frexpf(x, &exponent);
  if (exponent < -13) exponent = -13;
  float units = nearbyintf(ldexpf(x, 11 - exponent));
  if (units >= 2048) { units /= 2; exponent++; }
  return sign | (units < 1024 ? (uint16_t)units : (uint16_t)((exponent + 14) << 10 | ((int)units - 1024)));
}
static double get(const Layout* l, const void* x, int64_t at) {
  uint32_t bits;
  float value;
  switch (l->type) {
    case 0: return ((const float*)x)[at];
    case 1: return ((const double*)x)[at];
    case 2: return half(((const uint16_t*)x)[at]);
    default:
      bits = (uint32_t)((const uint16_t*)x)[at] << 16;
      memcpy(&value, &bits, 4);
      return value;
  }
}
static void put(const Layout* l, void* x, int64_t at, double sum) {
  float value = (float)sum;
  uint32_t bits;
  switch (l->type) {
    case 0: ((float*)x)[at] = value; return;
    case 1: ((double*)x)[at] = sum; return;
    case 2: ((uint16_t*)x)[at] = to_half(value); return;
    default:
      memcpy(&bits, &value, 4);
      if (value == value) bits += 0x7fff + (bits >> 16 & 1);
      ((uint16_t*)x)[at] = bits >> 16;
  }
}
static int64_t place(const Layout* l, int b, int64_t row, int64_t column) {
  return b * l->stride + column * l->pitch + row;
}

int cublasLtMatmul(
    void* handle, const Operation* o, const void* alpha, const void* x, const Layout* a,
    const void* y, const Layout* b, const void* beta, const void* z, const Layout* c, void* result,
    const Layout* d, const Algorithm* algorithm, void* workspace, size_t size, void* stream) {
  const int m = d->rows, n = d->columns, k = o->transposed[0] ? a->rows : a->columns;
  const double one = o->scale == 1 ? *(const double*)alpha : *(const float*)alpha;
  const double zero = o->scale == 1 ? *(const double*)beta : *(const float*)beta;
  if (algorithm->data[0] != 0xa190 || z != result || one != 1 || zero != 0) return INVALID;
  if ((o->transposed[0] ? a->columns : a->rows) != (uint64_t)m) return INVALID;
  if ((o->transposed[1] ? b->rows : b->columns) != (uint64_t)n) return INVALID;
  if ((o->transposed[1] ? b->columns : b->rows) != (uint64_t)k) return INVALID;
  if (a->batch != d->batch || b->batch != d->batch || a->type != b->type) return INVALID;
  const void* places[] = {x, y, z};
  for (int side = 0; side < 3; side++)
    if ((uintptr_t)places[side] % algorithm->data[1 + side]) return INVALID;
  taken = (int)algorithm->data[4];
  memset(workspace, 0xff, size);
  for (int at = 0; at < d->batch; at++)
    for (int i = 0; i < m; i++)
      for (int j = 0; j < n; j++) {
        double sum = 0;
        for (int s = 0; s < k; s++)
          sum += get(a, x, o->transposed[0] ? place(a, at, s, i) : place(a, at, i, s))
            * get(b, y, o->transposed[1] ? place(b, at, j, s) : place(b, at, s, j));
        put(d, result, place(d, at, i, j), sum);
      }
  return 0;
}
