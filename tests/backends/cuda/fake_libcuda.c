/* A libcuda for tests: its memory is the host's, handles are numbers that 32 bits cannot hold, and
   every call that changes something is a line of fake_log(). Definitions are held against cuda.h by
   the compiler that reads both. */

#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char lines[1 << 16];
static size_t used;
static char failing[64];
static CUresult failure;
static unsigned long long handles = 0x7000000000ull;
static CUcontext current;

typedef struct { char text[1024]; } Step;
static Step steps[64];
static int step_count;

const char *fake_log(void) { return lines; }

void fake_reset(void) {
  used = 0;
  lines[0] = 0;
  failing[0] = 0;
  step_count = 0;
}

/* The next call of that name answers with this error, once. */
void fake_fail(const char *call, int code) {
  snprintf(failing, sizeof failing, "%s", call);
  failure = (CUresult)code;
}

static CUresult fails(const char *call) {
  if (strcmp(call, failing) != 0) return CUDA_SUCCESS;
  failing[0] = 0;
  return failure;
}

static void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  used += vsnprintf(lines + used, sizeof lines - used, format, arguments);
  used += snprintf(lines + used, sizeof lines - used, "\n");
  va_end(arguments);
}

static void *handle(void) { return (void *)(handles += 0x10); }

#define HEX(x) ((unsigned long long)(x))
#define ASK(call) do { CUresult asked = fails(#call); if (asked) return asked; } while (0)

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text) {
  switch (error) {
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    default: *text = 0; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text) {
  *text = "as the fake says";
  return error == (CUresult)12345 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned int flags) { ASK(cuInit); say("init %u", flags); return CUDA_SUCCESS; }
CUresult CUDAAPI cuDriverGetVersion(int *version) { *version = 12040; return CUDA_SUCCESS; }

/* Two devices, whose CUdevice is not their number. */
CUresult CUDAAPI cuDeviceGetCount(int *count) { *count = 2; return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
  if (ordinal < 0 || ordinal > 1) return CUDA_ERROR_INVALID_DEVICE;
  *device = 70 + ordinal;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetName(char *name, int size, CUdevice device) {
  snprintf(name, size, "Fake %d", device);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  *bytes = ((size_t)140 << 30) + device;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = device == 70 ? 9 : 8; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = device == 70 ? 0 : 6; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    default: *value = 1000 + (int)attribute;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ASK(cuDevicePrimaryCtxRetain);
  *context = handle();
  say("retain %d -> %llx", device, HEX(*context));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) { say("release %d", device); return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  current = context;
  say("current %llx", HEX(context));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context) { *context = current; return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSynchronize(void) { ASK(cuCtxSynchronize); say("synchronise"); return CUDA_SUCCESS; }
CUresult CUDAAPI cuProfilerStart(void) { say("profile"); return CUDA_SUCCESS; }
CUresult CUDAAPI cuProfilerStop(void) { say("profile no more"); return CUDA_SUCCESS; }
CUresult CUDAAPI cuMemGetInfo(size_t *free, size_t *total) {
  *free = (size_t)5 << 32;
  *total = (size_t)9 << 32;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
  ASK(cuModuleLoadData);
  *module = handle();
  say("load %.8s -> %llx", (const char *)image, HEX(*module));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) { say("unload %llx", HEX(module)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = handle();
  say("function %s of %llx -> %llx", name, HEX(module), HEX(*function));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  *value = 100 + (int)attribute;
  return HEX(function) > 0x7000000000ull ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  say("function %llx attribute %d = %d", HEX(function), (int)attribute, value);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, CUfunction function, int threads, size_t shared) {
  *blocks = HEX(function) && shared == ((size_t)1 << 16) ? 2048 / threads : -1;
  return CUDA_SUCCESS;
}

/* Where `extra` has its bytes: {1, bytes, 2, &size, 0}, in any order; null without arguments. */
static void show_launch(char *text, size_t room, CUfunction function, const unsigned grid[3],
                        const unsigned block[3], unsigned shared, void **extra) {
  const unsigned char *bytes = 0;
  size_t size = 0, n = 0;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) bytes = extra[1];
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(size_t *)extra[1];
  }
  n = snprintf(text, room, "%llx grid %u,%u,%u block %u,%u,%u shared %u arguments ", HEX(function),
               grid[0], grid[1], grid[2], block[0], block[1], block[2], shared);
  for (size_t i = 0; i < size && n + 3 < room; i++) n += snprintf(text + n, room - n, "%02x", bytes[i]);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                void **parameters, void **extra) {
  char text[1024];
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  ASK(cuLaunchKernel);
  if (parameters) return CUDA_ERROR_INVALID_VALUE;
  show_launch(text, sizeof text, function, grid, block, shared, extra);
  say("launch %s on %llx", text, HEX(stream));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t size) {
  ASK(cuMemAlloc);
  *address = (CUdeviceptr)aligned_alloc(256, (size + 255) / 256 * 256);
  say("allocate %zu", size);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFree(CUdeviceptr address) { free((void *)address); say("free"); return CUDA_SUCCESS; }
CUresult CUDAAPI cuMemHostAlloc(void **address, size_t size, unsigned int flags) {
  *address = aligned_alloc(256, (size + 255) / 256 * 256);
  say("allocate host %zu, flags %u", size, flags);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFreeHost(void *address) { free(address); say("free host"); return CUDA_SUCCESS; }
CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned int flags) {
  *address = (CUdeviceptr)host + flags;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t size, CUstream stream) {
  memcpy((void *)target, source, size);
  say("copy in %zu on %llx", size, HEX(stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t size, CUstream stream) {
  memcpy(target, (void *)source, size);
  say("copy out %zu on %llx", size, HEX(stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
  memcpy((void *)target, (void *)source, size);
  say("copy %zu on %llx", size, HEX(stream));
  return CUDA_SUCCESS;
}

static void fill(CUdeviceptr target, unsigned value, unsigned width, size_t count) {
  for (size_t i = 0; i < count; i++) memcpy((char *)target + i * width, &value, width);
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  fill(target, value, 1, count);
  say("fill %zu of 1 on %llx", count, HEX(stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream) {
  fill(target, value, 2, count);
  say("fill %zu of 2 on %llx", count, HEX(stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream) {
  fill(target, value, 4, count);
  say("fill %zu of 4 on %llx", count, HEX(stream));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  *stream = handle();
  say("stream flags %u priority %d -> %llx", flags, priority, HEX(*stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamDestroy(CUstream stream) { say("destroy stream %llx", HEX(stream)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  ASK(cuStreamSynchronize);
  say("wait for %llx", HEX(stream));
  return CUDA_SUCCESS;
}
static CUresult known(void *handle) {
  return HEX(handle) > 0x7000000000ull ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult CUDAAPI cuStreamQuery(CUstream stream) { ASK(cuStreamQuery); return known(stream); }
CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  say("order %llx after %llx flags %u", HEX(stream), HEX(event), flags);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned int flags) {
  *event = handle();
  say("event flags %u -> %llx", flags, HEX(*event));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventDestroy(CUevent event) { say("destroy event %llx", HEX(event)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  say("record %llx on %llx", HEX(event), HEX(stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventQuery(CUevent event) { ASK(cuEventQuery); return known(event); }
CUresult CUDAAPI cuEventSynchronize(CUevent event) { say("wait for %llx", HEX(event)); return CUDA_SUCCESS; }
#undef cuEventElapsedTime /* CUDA 13 names the second one so; drivers export both */
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  *milliseconds = (float)(HEX(end) - HEX(start)) / 32;
  return CUDA_SUCCESS;
}

/* Graphs: a node is its place in `steps`; a launch of the graph says them all. */
static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count) {
  char *text = steps[step_count].text;
  size_t n = snprintf(text, 1024, "after");
  for (size_t i = 0; i < count; i++) n += snprintf(text + n, 1024 - n, " %llu", HEX(after[i]) & 0xff);
  snprintf(text + n, 1024 - n, ": ");
  *node = (CUgraphNode)(0x7100000000ull + step_count++);
  return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static void set_kernel(int number, const CUDA_KERNEL_NODE_PARAMS *p) {
  char *text = strchr(steps[number].text, ':') + 2;
  const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
  const unsigned block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  if (p->kernelParams || p->kern || p->ctx) abort();
  show_launch(text, 900, p->func, grid, block, p->sharedMemBytes, p->extra);
}
CUresult CUDAAPI cuGraphCreate(CUgraph *graph, unsigned int flags) {
  *graph = handle();
  say("graph flags %u -> %llx", flags, HEX(*graph));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) { say("destroy graph %llx", HEX(graph)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                      size_t count, const CUDA_KERNEL_NODE_PARAMS *parameters) {
  CUresult result = add(node, graph, after, count);
  set_kernel(step_count - 1, parameters);
  return result;
}
CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                      size_t count, const CUDA_MEMCPY3D *p, CUcontext context) {
  CUresult result = add(node, graph, after, count);
  char *text = steps[step_count - 1].text;
  if (p->srcMemoryType != CU_MEMORYTYPE_UNIFIED || p->dstMemoryType != CU_MEMORYTYPE_UNIFIED ||
      p->Height != 1 || p->Depth != 1 || p->srcHost || p->dstHost || context != current)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy((void *)p->dstDevice, (void *)p->srcDevice, p->WidthInBytes);
  snprintf(text + strlen(text), 256, "copy %zu", p->WidthInBytes);
  return result;
}
CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                      size_t count, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context) {
  CUresult result = add(node, graph, after, count);
  char *text = steps[step_count - 1].text;
  if (p->height != 1 || context != current) return CUDA_ERROR_INVALID_VALUE;
  fill(p->dst, p->value, p->elementSize, p->width);
  snprintf(text + strlen(text), 256, "fill %zu of %u", p->width, p->elementSize);
  return result;
}
CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  say("capture %llx mode %d", HEX(stream), (int)mode);
  return stream ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  *graph = handle();
  say("captured %llx -> %llx", HEX(stream), HEX(*graph));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                          size_t count, CUgraph inner) {
  CUresult result = add(node, graph, after, count);
  char *text = steps[step_count - 1].text;
  snprintf(text + strlen(text), 256, "graph %llx", HEX(inner));
  return result;
}
CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph inner) {
  ASK(cuGraphExecChildGraphNodeSetParams);
  char *text = strchr(steps[HEX(node) & 0xff].text, ':') + 2;
  snprintf(text, 256, "graph %llx", HEX(inner));
  return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  *exec = handle();
  say("instantiate %llx flags %llu -> %llx", HEX(graph), flags, HEX(*exec));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) { say("destroy executable %llx", HEX(exec)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS *parameters) {
  set_kernel((int)(HEX(node) & 0xff), parameters);
  return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ASK(cuGraphLaunch);
  say("launch graph %llx on %llx", HEX(exec), HEX(stream));
  for (int i = 0; i < step_count; i++) say("  %d %s", i, steps[i].text);
  return CUDA_SUCCESS;
}
