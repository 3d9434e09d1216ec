/* A program without Python that uses ONNX Runtime through its C interface and registers the library.

   host ONNXRUNTIME LIBRARY [MODEL THREADS RUNS]: registers the library; with a model it also runs it on this execution
   provider and no other, from several threads at once, on x = 0..5 as 2x3 floats, and prints the first result. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slots.h" /* written by the test: enum { SLOT_CreateEnv = 3, ... } */

typedef void Status;
typedef struct {
  void* const* (*GetApi)(uint32_t);
  const char* (*GetVersionString)(void);
} Base;

static void* const* api;
#define FUNCTION(name, ...) ((Status * (*)(__VA_ARGS__)) api[SLOT_##name])

static void check(Status* status) {
  if (!status) return;
  int code = ((int (*)(Status*))api[SLOT_GetErrorCode])(status);
  printf("status %d: %s\n", code, ((const char* (*)(Status*))api[SLOT_GetErrorMessage])(status));
  exit(3);
}

static void *session, *memory_info;
static int num_runs;

static Status* run_once(float* result) {
  static const int64_t shape[] = {2, 3};
  static const char* inputs[] = {"x"};
  static const char* outputs[] = {"y"};
  float data[6] = {0, 1, 2, 3, 4, 5};
  void *input = NULL, *output = NULL, *values = NULL;
  check(FUNCTION(CreateTensorWithDataAsOrtValue, void*, void*, size_t, const int64_t*, size_t, int, void**)(
      memory_info, data, sizeof data, shape, 2, 1, &input));
  Status* status = FUNCTION(Run, void*, void*, const char**, void**, size_t, const char**, size_t, void**)(
      session, NULL, inputs, &input, 1, outputs, 1, &output);
  if (!status) {
    check(FUNCTION(GetTensorMutableData, void*, void**)(output, &values));
    memcpy(result, values, sizeof data);
    ((void (*)(void*))api[SLOT_ReleaseValue])(output);
  }
  ((void (*)(void*))api[SLOT_ReleaseValue])(input);
  return status;
}

static void* work(void* expected) {
  float result[6];
  for (int i = 0; i < num_runs; i++) {
    check(run_once(result));
    if (memcmp(result, expected, sizeof result) != 0) return expected;
  }
  return NULL;
}

static void run_on_threads(int num_threads) {
  float expected[6];
  check(run_once(expected));
  for (int i = 0; i < 6; i++) printf("%g ", expected[i]);
  pthread_t threads[16];
  for (int i = 0; i < num_threads; i++) pthread_create(&threads[i], NULL, work, expected);
  int num_wrong = 0;
  for (int i = 0; i < num_threads; i++) {
    void* wrong;
    pthread_join(threads[i], &wrong);
    num_wrong += wrong != NULL;
  }
  printf("\nthreads with wrong results: %d\n", num_wrong);
}

static void open_session(void* env, const char* model) {
  const void* const* devices = NULL;
  const void* ours[8];
  size_t count = 0, num_ours = 0;
  const char* keys[] = {"claim"};
  const char* values[] = {"all"};
  void* options = NULL;
  check(FUNCTION(GetEpDevices, void*, const void* const**, size_t*)(env, &devices, &count));
  for (size_t i = 0; i < count && num_ours < 1; i++)
    if (strcmp(((const char* (*)(const void*))api[SLOT_EpDevice_EpName])(devices[i]), "DovetailExecutionProvider") == 0)
      ours[num_ours++] = devices[i];
  printf("devices: %zu\n", num_ours);
  check(FUNCTION(CreateSessionOptions, void**)(&options));
  check(FUNCTION(AddSessionConfigEntry, void*, const char*, const char*)(options, "session.disable_cpu_ep_fallback", "1"));
  check(FUNCTION(SessionOptionsAppendExecutionProvider_V2, void*, void*, const void* const*, size_t, const char* const*,
                 const char* const*, size_t)(options, env, ours, num_ours, keys, values, 1));
  check(FUNCTION(CreateSession, void*, const char*, void*, void**)(env, model, options, &session));
  check(FUNCTION(CreateCpuMemoryInfo, int, int, void**)(0, 0, &memory_info));
  ((void (*)(void*))api[SLOT_ReleaseSessionOptions])(options);
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IONBF, 0);
  void* runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!runtime) return fprintf(stderr, "%s\n", dlerror()), 2;
  const Base* base = ((const Base* (*)(void))dlsym(runtime, "OrtGetApiBase"))();
  api = base->GetApi(API_VERSION);
  if (!api) return 2;
  void* env = NULL;
  check(FUNCTION(CreateEnv, int, const char*, void**)(3, "host", &env));
  check(FUNCTION(RegisterExecutionProviderLibrary, void*, const char*, const char*)(env, "dovetail", argv[2]));
  printf("registered\n");
  if (argc > 5) {
    num_runs = atoi(argv[5]);
    open_session(env, argv[3]);
    run_on_threads(atoi(argv[4]));
    ((void (*)(void*))api[SLOT_ReleaseSession])(session);
    ((void (*)(void*))api[SLOT_ReleaseMemoryInfo])(memory_info);
  }
  check(FUNCTION(UnregisterExecutionProviderLibrary, void*, const char*)(env, "dovetail"));
  ((void (*)(void*))api[SLOT_ReleaseEnv])(env);
  printf("done\n");
  return 0;
}
