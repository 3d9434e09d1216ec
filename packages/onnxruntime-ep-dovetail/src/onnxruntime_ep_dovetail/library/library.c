/* The shared library that ONNX Runtime loads: three entry points that jump through slots which the Python side fills.

   A Python program fills the slots before it registers the library. Any other host finds them empty: then the library
   finds the interpreter of the process, or starts one, and has it import onnxruntime_ep_dovetail.install, which fills
   them. Nothing here needs Python.h or links libpython, so one file serves every version of Python.

   Which interpreter to start: libpython is named by DOVETAIL_EP_LIBPYTHON and its executable, which tells Python its
   virtual environment, by DOVETAIL_EP_PYTHON; without the first both are read from libdovetail_ep.python, the file
   beside the library that host.py writes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ORT_FAIL 1 /* never 11: that code makes ONNX Runtime's Python rebuild the session on the CPU in silence */
#define PY_FILE_INPUT 257
#define RECORD_NAME "libdovetail_ep.python"

typedef struct OrtStatus OrtStatus;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtLogger OrtLogger;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtApi {
  OrtStatus* (*CreateStatus)(int code, const char* message); /* the first slot since the first version */
} OrtApi;
typedef struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)(void);
} OrtApiBase;

typedef OrtStatus* (*CreateFn)(const char*, const OrtApiBase*, const OrtLogger*, OrtEpFactory**, size_t, size_t*);
typedef OrtStatus* (*ReleaseFn)(OrtEpFactory*);
typedef OrtStatus* (*CustomOpsFn)(OrtSessionOptions*, const OrtApiBase*);

EXPORT void* dovetail_ep_create = NULL;
EXPORT void* dovetail_ep_release = NULL;
EXPORT void* dovetail_ep_custom_ops = NULL;

/* What every callback is replaced by when the interpreter goes away. */
EXPORT void* dovetail_ep_noop(void) { return NULL; }

/* ---- messages and files; every string is allocated to its size, because paths are the user's ---- */

__attribute__((format(printf, 1, 2))) static char* format(const char* pattern, ...) {
  va_list arguments;
  char* text = NULL;
  va_start(arguments, pattern);
  if (vasprintf(&text, pattern, arguments) < 0) text = NULL;
  va_end(arguments);
  return text;
}

static const char* last_dl_error(void) {
  const char* text = dlerror();
  return text ? text : "no reason given";
}

static char* own_path(void) {
  Dl_info info;
  if (!dladdr((void*)&dovetail_ep_create, &info) || !info.dli_fname) return NULL;
  char* path = realpath(info.dli_fname, NULL);
  return path ? path : strdup(info.dli_fname);
}

static char* path_beside(const char* path, const char* name) {
  const char* slash = strrchr(path, '/');
  return slash ? format("%.*s/%s", (int)(slash - path), path, name) : strdup(name);
}

typedef struct {
  char* libpython;  /* NULL when nothing names one */
  char* executable; /* NULL lets Python look for itself */
} Host;

static void free_host(Host* host) {
  free(host->libpython);
  free(host->executable);
}

/* Keep the value of a line "key=value" if it has that key. */
static void read_value(const char* line, const char* key, char** value) {
  size_t length = strlen(key);
  if (strncmp(line, key, length) == 0 && line[length] == '=' && line[length + 1] != '\0') {
    free(*value);
    *value = strdup(line + length + 1);
  }
}

static void read_record(const char* library, Host* host) {
  char* path = path_beside(library, RECORD_NAME);
  FILE* file = path ? fopen(path, "re") : NULL;
  char* line = NULL;
  size_t capacity = 0;
  ssize_t length;
  while (file && (length = getline(&line, &capacity, file)) >= 0) {
    if (length > 0 && line[length - 1] == '\n') line[length - 1] = '\0';
    read_value(line, "libpython", &host->libpython);
    read_value(line, "executable", &host->executable);
  }
  if (file) fclose(file);
  free(line);
  free(path);
}

static char* copy_of_variable(const char* name) {
  const char* value = getenv(name);
  return value && *value ? strdup(value) : NULL;
}

static Host choose_host(const char* library) {
  Host host = {copy_of_variable("DOVETAIL_EP_LIBPYTHON"), NULL};
  /* The recorded executable belongs to the recorded libpython; another libpython would look for its standard library
     in the wrong place. */
  if (!host.libpython) read_record(library, &host);
  return host;
}

/* ---- the interpreter, through the few functions that every version since 3.11 has ---- */

typedef struct PyObject PyObject;
typedef struct {
  void* handle;
  int (*IsInitialized)(void);
  int (*GILState_Ensure)(void);
  void (*GILState_Release)(int);
  PyObject* (*Dict_New)(void);
  PyObject* (*Eval_GetBuiltins)(void);
  int (*Dict_SetItemString)(PyObject*, const char*, PyObject*);
  PyObject* (*Dict_GetItemString)(PyObject*, const char*);
  PyObject* (*Unicode_DecodeFSDefault)(const char*);
  PyObject* (*Bytes_FromString)(const char*);
  char* (*Bytes_AsString)(PyObject*);
  PyObject* (*Run_String)(const char*, int, PyObject*, PyObject*);
  void (*Err_Clear)(void);
  void (*DecRef)(PyObject*);
} Python;

/* Return NULL, or a message that the caller frees. */
static char* bind_python(Python* python, void* handle) {
  const struct {
    const char* name;
    void* target;
  } wanted[] = {
      {"Py_IsInitialized", &python->IsInitialized},
      {"PyGILState_Ensure", &python->GILState_Ensure},
      {"PyGILState_Release", &python->GILState_Release},
      {"PyDict_New", &python->Dict_New},
      {"PyEval_GetBuiltins", &python->Eval_GetBuiltins},
      {"PyDict_SetItemString", &python->Dict_SetItemString},
      {"PyDict_GetItemString", &python->Dict_GetItemString},
      {"PyUnicode_DecodeFSDefault", &python->Unicode_DecodeFSDefault},
      {"PyBytes_FromString", &python->Bytes_FromString},
      {"PyBytes_AsString", &python->Bytes_AsString},
      {"PyRun_String", &python->Run_String},
      {"PyErr_Clear", &python->Err_Clear},
      {"Py_DecRef", &python->DecRef},
  };
  python->handle = handle;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void* symbol = dlsym(handle, wanted[i].name);
    if (!symbol) return format("the libpython of this process lacks %s", wanted[i].name);
    memcpy(wanted[i].target, &symbol, sizeof symbol);
  }
  return NULL;
}

static char* load_libpython(const Host* host, const char* library, void** handle) {
  if (!host->libpython)
    return format(
        "there is no Python in this process and nothing names one: set DOVETAIL_EP_LIBPYTHON to the path of libpython "
        "and DOVETAIL_EP_PYTHON to its executable, or run 'python -m onnxruntime_ep_dovetail.library.host', which "
        "writes both to the file %s beside %s",
        RECORD_NAME, library);
  /* Global, because extension modules such as NumPy's do not link libpython and take its symbols from the process. */
  *handle = dlopen(host->libpython, RTLD_NOW | RTLD_GLOBAL);
  if (*handle) return NULL;
  return format("cannot load libpython from '%s' (%s): set DOVETAIL_EP_LIBPYTHON to its path", host->libpython,
                last_dl_error());
}

/* Python 3.14 and later: a configuration by name. It starts out isolated, and the options make it heed the variables
   of the environment, as the older way does. */
static char* start_by_config(void* handle, const Host* host) {
  void* (*create)(void) = (void* (*)(void))dlsym(handle, "PyInitConfig_Create");
  int (*set_int)(void*, const char*, int64_t) = (int (*)(void*, const char*, int64_t))dlsym(handle, "PyInitConfig_SetInt");
  int (*set_str)(void*, const char*, const char*) =
      (int (*)(void*, const char*, const char*))dlsym(handle, "PyInitConfig_SetStr");
  int (*start)(void*) = (int (*)(void*))dlsym(handle, "Py_InitializeFromInitConfig");
  int (*get_error)(void*, const char**) = (int (*)(void*, const char**))dlsym(handle, "PyInitConfig_GetError");
  void (*release)(void*) = (void (*)(void*))dlsym(handle, "PyInitConfig_Free");
  if (!set_int || !set_str || !start || !get_error || !release) return strdup("libpython lacks PyInitConfig functions");
  void* config = create();
  if (!config) return strdup("out of memory");
  const char* reason = NULL;
  char* error = NULL;
  if (set_int(config, "isolated", 0) || set_int(config, "use_environment", 1) ||
      set_int(config, "user_site_directory", 1) || set_int(config, "safe_path", 1) ||
      (host->executable && set_str(config, "program_name", host->executable)) || start(config)) {
    get_error(config, &reason);
    error = format("Python did not start: %s", reason ? reason : "no reason given");
  }
  release(config);
  return error;
}

/* Python 3.11 to 3.13. The executable leads Python to pyvenv.cfg, and so to the virtual environment. */
static char* start_by_name(void* handle, const Host* host) {
  void (*start)(int) = (void (*)(int))dlsym(handle, "Py_InitializeEx");
  void (*set_name)(const wchar_t*) = (void (*)(const wchar_t*))dlsym(handle, "Py_SetProgramName");
  wchar_t* (*decode)(const char*, size_t*) = (wchar_t * (*)(const char*, size_t*)) dlsym(handle, "Py_DecodeLocale");
  if (!start || !set_name || !decode) return strdup("libpython lacks Py_InitializeEx or Py_SetProgramName");
  if (host->executable) {
    wchar_t* name = decode(host->executable, NULL); /* Python keeps it */
    if (!name) return format("cannot decode the path '%s'", host->executable);
    set_name(name);
  }
  start(0); /* 0: the signal handlers stay the host's */
  return NULL;
}

static char* start_python(const Python* python, const Host* host) {
  void* (*save_thread)(void) = (void* (*)(void))dlsym(python->handle, "PyEval_SaveThread");
  if (!save_thread) return strdup("libpython lacks PyEval_SaveThread");
  char* error = dlsym(python->handle, "PyInitConfig_Create") ? start_by_config(python->handle, host)
                                                              : start_by_name(python->handle, host);
  if (!error) save_thread(); /* or every other thread would wait for this one */
  return error;
}

/* Two runtimes of one process may call at once, and only one may start Python. Nothing that holds the lock waits for
   Python's own lock, so the two cannot block each other. */
static char* ensure_python(Python* python, const char* library) {
  static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
  Host host = {NULL, NULL};
  void* handle = RTLD_DEFAULT;
  char* error = NULL;
  pthread_mutex_lock(&starting);
  if (!dlsym(RTLD_DEFAULT, "Py_IsInitialized")) {
    host = choose_host(library);
    error = load_libpython(&host, library, &handle);
  }
  char* executable = copy_of_variable("DOVETAIL_EP_PYTHON");
  if (executable) {
    free(host.executable);
    host.executable = executable;
  }
  if (!error) error = bind_python(python, handle);
  if (!error && !python->IsInitialized()) error = start_python(python, &host);
  pthread_mutex_unlock(&starting);
  free_host(&host);
  return error;
}

/* ---- the Python side ---- */

/* Run with `library`, the path of this file, in its globals; leaves its complaint in `error`, or None. The folder that
   holds the package is the last place to look, for a library used where the package was not installed. */
static const char INSTALL[] =
    "import os, sys\n"
    "error = None\n"
    "try:\n"
    "    folder = os.path.dirname(os.path.dirname(os.path.dirname(library)))\n"
    "    if os.path.isfile(os.path.join(folder, 'onnxruntime_ep_dovetail', '__init__.py')) and folder not in sys.path:\n"
    "        sys.path.append(folder)\n"
    "    import onnxruntime_ep_dovetail.install\n"
    "    onnxruntime_ep_dovetail.install.install(library)\n"
    "except BaseException as failure:\n"
    "    import traceback\n"
    "    text = ''.join(traceback.format_exception_only(failure)).strip()\n"
    "    error = f'{text} (Python {sys.version.split()[0]}, {sys.executable or sys.prefix})'.encode('utf-8', 'replace')\n";

static char* run_install(const Python* python, const char* library) {
  char* error = NULL;
  PyObject* globals = python->Dict_New();
  PyObject* path = python->Unicode_DecodeFSDefault(library);
  PyObject* done = NULL;
  if (globals && path && python->Dict_SetItemString(globals, "library", path) == 0 &&
      python->Dict_SetItemString(globals, "__builtins__", python->Eval_GetBuiltins()) == 0)
    done = python->Run_String(INSTALL, PY_FILE_INPUT, globals, globals);
  PyObject* complaint = done ? python->Dict_GetItemString(globals, "error") : NULL;
  const char* text = complaint ? python->Bytes_AsString(complaint) : NULL; /* NULL for None too */
  if (!done || text) error = format("the Python side could not be installed: %s", text ? text : "out of memory");
  python->Err_Clear();
  if (done) python->DecRef(done);
  if (path) python->DecRef(path);
  if (globals) python->DecRef(globals);
  return error;
}

static char* install(void) {
  char* library = own_path();
  if (!library) return strdup("the library cannot find its own path");
  Python python;
  char* error = ensure_python(&python, library);
  if (!error) {
    int state = python.GILState_Ensure();
    error = run_install(&python, library);
    python.GILState_Release(state);
  }
  if (!error && !__atomic_load_n(&dovetail_ep_create, __ATOMIC_ACQUIRE))
    error = format("onnxruntime_ep_dovetail.install did not fill the entry points of '%s'", library);
  free(library);
  return error;
}

/* The slots are filled in the order release, custom_ops, create: with the last of them all are there. */
static char* install_once(void) {
  return __atomic_load_n(&dovetail_ep_create, __ATOMIC_ACQUIRE) ? NULL : install();
}

/* ---- the entry points ---- */

static OrtStatus* fail(const OrtApiBase* base, char* message) {
  const OrtApi* api = base->GetApi(1); /* every runtime has version 1, and all versions have CreateStatus first */
  char* text = format("Dovetail: %s", message ? message : "out of memory");
  if (!api) fprintf(stderr, "%s\n", text ? text : "Dovetail: out of memory");
  OrtStatus* status = api ? api->CreateStatus(ORT_FAIL, text ? text : "Dovetail: out of memory") : NULL;
  free(text);
  free(message);
  return status;
}

EXPORT OrtStatus* CreateEpFactories(const char* name, const OrtApiBase* base, const OrtLogger* logger,
                                    OrtEpFactory** factories, size_t max_factories, size_t* num_factories) {
  *num_factories = 0;
  char* error = install_once();
  if (error) return fail(base, error);
  CreateFn create = (CreateFn)__atomic_load_n(&dovetail_ep_create, __ATOMIC_ACQUIRE);
  return create(name, base, logger, factories, max_factories, num_factories);
}

/* Called by sessions that name the execution provider and so do not get the domains of its factory. */
EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  char* error = install_once();
  if (error) return fail(base, error);
  CustomOpsFn custom_ops = (CustomOpsFn)__atomic_load_n(&dovetail_ep_custom_ops, __ATOMIC_ACQUIRE);
  return custom_ops(options, base);
}

EXPORT OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  ReleaseFn release = (ReleaseFn)__atomic_load_n(&dovetail_ep_release, __ATOMIC_ACQUIRE);
  return release ? release(factory) : NULL;
}
