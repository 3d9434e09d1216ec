/* The fast Compute: what ONNX Runtime calls to run a partition, as a CPython extension module.

   A state is one partition of one session. It keeps a list of free frames, because ONNX Runtime may run a session on
   several threads at once: a frame belongs to one thread from the first line of a run to the last. A frame is scratch
   memory of this module and a Python object with three methods:

     resize(shapes) -> outputs   or resize(shapes, stream) in a state with a stream, whose handle is 0 if there is none;
                                 shapes: for each input a tuple of ints, or None for an absent optional input;
                                 outputs: for each output its shape, or None if only the run tells it
     run(addresses)              one tuple of ints, inputs then outputs; 0 for what is absent or not yet known. It is the
                                 same object as at the last run of the frame if no address changed. A state with a
                                 stream adds its handle at the end, 0 if there is none
     result(index)               asked for outputs of unknown shape after run: (address, shape) of a contiguous result,
                                 which is copied; or (None, shape), and then fill(index, address) must write it

   Addresses and shapes are gathered without Python's lock. resize is called when the shapes differ from those of the
   frame's last run, and `run` is looked up once after that, so an object may set a new one in resize. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "closing.h"
#include "runs.h"
#include "threads.h"

#define ORT_FAIL 1 /* never 11: that code makes ONNX Runtime's Python rebuild the session on the CPU in silence */
#define ABSENT (-1) /* the rank of an optional input that is not there */
#define UNKNOWN (-2) /* the rank of an output whose shape only the run tells */
/* Where kernel_compute finds the state: this many bytes after the start of the OrtKernelImpl, which is 40 bytes long
   today and only ever grows at its end. */
#define KERNEL_STATE_OFFSET 128

/* ---- ONNX Runtime ---- */

typedef struct OrtStatus OrtStatus;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtValue OrtValue;

typedef struct Api {
  struct Api* next;
  void* address;
  OrtStatus* (*CreateStatus)(int code, const char* message);
  OrtStatus* (*GetInput)(const OrtKernelContext*, size_t index, const OrtValue** value);
  OrtStatus* (*GetOutput)(OrtKernelContext*, size_t index, const int64_t* dims, size_t rank, OrtValue** value);
  OrtStatus* (*GetData)(OrtValue*, void** data);
  OrtStatus* (*GetTypeAndShape)(const OrtValue*, int* type, const int64_t** dims, size_t* rank);
  OrtStatus* (*GetStream)(const OrtKernelContext*, void** handle);
} Api;

/* Bits of one element, by ONNXTensorElementDataType; 0 where elements have no fixed size. */
static const int ELEMENT_BITS[] = {
    0,  32, 8,  8,   16, 16, 32, 64, /* undefined, float, uint8, int8, uint16, int16, int32, int64 */
    0,  8,  16, 64,  32, 64, 64, 128, /* string, bool, float16, double, uint32, uint64, complex64, complex128 */
    16, 8,  8,  8,   8,  4,  4,  4, /* bfloat16, four kinds of float8, uint4, int4, float4e2m1 */
    2,  2,  8, /* uint2, int2, float8e8m0 */
};
enum { FLOAT_TYPE = 1, BOOL_TYPE = 9, FLOAT16_TYPE = 10, DOUBLE_TYPE = 11, BFLOAT16_TYPE = 16 };
#define NUM_ELEMENT_TYPES ((int)(sizeof ELEMENT_BITS / sizeof *ELEMENT_BITS))

/* ---- states and frames ---- */

/* Ranks and dimensions of several tensors, one after another: rank, dims..., rank, dims... */
typedef struct {
  int64_t* words;
  size_t count, capacity;
} Shapes;

typedef struct Frame {
  struct Frame* next;
  int is_sized; /* `inputs` and `outputs` are those of the object's last resize */
  Shapes gathered, inputs, outputs;
  void** pointers; /* of this run: inputs, outputs, and the stream if the state has one */
  void** last_pointers; /* those that `addresses` holds */
  PyObject* addresses;
  PyObject* object;
  PyObject* run;
} Frame;

typedef struct State {
  struct State* next;
  Api api;
  PyObject* new_frame;
  const void* ep; /* whose runs it belongs to */
  size_t num_inputs, num_outputs;
  int has_stream;
  int* types; /* of inputs, then of outputs */
  pthread_mutex_t lock;
  Frame* free_frames;
} State;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static Api* attached = NULL; /* the newest first */
static State* states = NULL;

static PyObject *name_resize, *name_run;

static int reserve(Shapes* shapes, size_t more) {
  size_t needed = shapes->count + more;
  if (needed <= shapes->capacity) return 1;
  size_t capacity = needed * 2 + 8;
  int64_t* words = realloc(shapes->words, capacity * sizeof *words);
  if (!words) return 0;
  shapes->words = words;
  shapes->capacity = capacity;
  return 1;
}

static int append_shape(Shapes* shapes, int64_t rank, const int64_t* dims) {
  size_t num_dims = rank > 0 ? (size_t)rank : 0;
  if (!reserve(shapes, 1 + num_dims)) return 0;
  shapes->words[shapes->count++] = rank;
  if (num_dims) memcpy(shapes->words + shapes->count, dims, num_dims * sizeof *dims);
  shapes->count += num_dims;
  return 1;
}

/* The rank at *position, which moves on to the next tensor; *dims points to the dimensions. */
static int64_t next_shape(const Shapes* shapes, size_t* position, const int64_t** dims) {
  int64_t rank = shapes->words[*position];
  *dims = shapes->words + *position + 1;
  *position += 1 + (rank > 0 ? (size_t)rank : 0);
  return rank;
}

static int same_shapes(const Shapes* a, const Shapes* b) {
  return a->count == b->count && (a->count == 0 || memcmp(a->words, b->words, a->count * sizeof *a->words) == 0);
}

static size_t num_pointers(const State* state) {
  return state->num_inputs + state->num_outputs + (state->has_stream ? 1 : 0);
}

static Frame* make_frame(const State* state) {
  Frame* frame = calloc(1, sizeof *frame);
  if (!frame) return NULL;
  size_t count = num_pointers(state) + 1; /* never of size 0, which may give NULL */
  frame->pointers = calloc(count, sizeof *frame->pointers);
  frame->last_pointers = calloc(count, sizeof *frame->last_pointers);
  if (frame->pointers && frame->last_pointers) return frame;
  free(frame->pointers);
  free(frame->last_pointers);
  free(frame);
  return NULL;
}

/* Needs Python's lock. */
static void free_frame(Frame* frame) {
  Py_XDECREF(frame->addresses);
  Py_XDECREF(frame->run);
  Py_XDECREF(frame->object);
  free(frame->gathered.words);
  free(frame->inputs.words);
  free(frame->outputs.words);
  free(frame->pointers);
  free(frame->last_pointers);
  free(frame);
}

static Frame* take_frame(State* state) {
  pthread_mutex_lock(&state->lock);
  Frame* frame = state->free_frames;
  if (frame) state->free_frames = frame->next;
  pthread_mutex_unlock(&state->lock);
  return frame ? frame : make_frame(state);
}

static void put_frame_back(State* state, Frame* frame) {
  pthread_mutex_lock(&state->lock);
  frame->next = state->free_frames;
  state->free_frames = frame;
  pthread_mutex_unlock(&state->lock);
}

/* ---- errors ---- */

static OrtStatus* fail(const State* state, const char* message) { return state->api.CreateStatus(ORT_FAIL, message); }

static PyObject* take_exception(void) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

/* An exception as a status: the name of its class, and all of its text. */
static OrtStatus* fail_with_exception(const State* state, PyObject* exception) {
  PyObject* name = exception ? PyType_GetName(Py_TYPE(exception)) : NULL;
  PyObject* text = exception ? PyObject_Str(exception) : NULL;
  if (!text) {
    PyErr_Clear();
    text = PyUnicode_FromString("(its text cannot be had)");
  }
  PyObject* message = NULL;
  if (name && text) message = PyUnicode_GET_LENGTH(text) ? PyUnicode_FromFormat("%U: %U", name, text) : Py_NewRef(name);
  PyObject* encoded = message ? PyUnicode_AsEncodedString(message, "utf-8", "backslashreplace") : NULL;
  OrtStatus* status = fail(state, encoded ? PyBytes_AS_STRING(encoded) : "MemoryError");
  PyErr_Clear();
  Py_XDECREF(encoded);
  Py_XDECREF(message);
  Py_XDECREF(text);
  Py_XDECREF(name);
  return status;
}

static OrtStatus* fail_with_type(const State* state, size_t index, int type) {
  char message[128];
  snprintf(message, sizeof message, "input %zu has element type %d, and %d was compiled", index, type,
           state->types[index]);
  return fail(state, message);
}

/* ---- without Python's lock: addresses and shapes ---- */

static OrtStatus* gather_input(const State* state, Frame* frame, size_t index, const OrtKernelContext* context) {
  const Api* api = &state->api;
  const OrtValue* value = NULL;
  OrtStatus* status = api->GetInput(context, index, &value);
  if (status) return status;
  frame->pointers[index] = NULL;
  if (!value) return append_shape(&frame->gathered, ABSENT, NULL) ? NULL : fail(state, "out of memory");
  int type = 0;
  const int64_t* dims = NULL;
  size_t rank = 0;
  status = api->GetTypeAndShape(value, &type, &dims, &rank);
  if (status) return status;
  if (state->types[index] && type != state->types[index]) return fail_with_type(state, index, type);
  if (!append_shape(&frame->gathered, (int64_t)rank, dims)) return fail(state, "out of memory");
  return api->GetData((OrtValue*)value, &frame->pointers[index]);
}

static OrtStatus* gather_inputs(const State* state, Frame* frame, const OrtKernelContext* context) {
  frame->gathered.count = 0;
  for (size_t i = 0; i < state->num_inputs; i++) {
    OrtStatus* status = gather_input(state, frame, i, context);
    if (status) return status;
  }
  if (!state->has_stream) return NULL;
  void** handle = &frame->pointers[state->num_inputs + state->num_outputs];
  *handle = NULL;
  return state->api.GetStream(context, handle);
}

/* An output that nobody wants has no value, and address 0. */
static OrtStatus* get_output(const State* state, OrtKernelContext* context, size_t index, const int64_t* dims,
                             size_t rank, void** address) {
  OrtValue* value = NULL;
  OrtStatus* status = state->api.GetOutput(context, index, dims, rank, &value);
  *address = NULL;
  return status || !value ? status : state->api.GetData(value, address);
}

static OrtStatus* get_known_outputs(const State* state, Frame* frame, OrtKernelContext* context) {
  size_t position = 0;
  const int64_t* dims;
  for (size_t i = 0; i < state->num_outputs; i++) {
    void** address = &frame->pointers[state->num_inputs + i];
    int64_t rank = next_shape(&frame->outputs, &position, &dims);
    *address = NULL;
    OrtStatus* status = rank == UNKNOWN ? NULL : get_output(state, context, i, dims, (size_t)rank, address);
    if (status) return status;
  }
  return NULL;
}

/* ---- with Python's lock ---- */

static PyObject* tuple_of_dims(const int64_t* dims, int64_t rank) {
  PyObject* tuple = PyTuple_New((Py_ssize_t)rank);
  for (int64_t i = 0; tuple && i < rank; i++) {
    PyObject* dim = PyLong_FromLongLong(dims[i]);
    if (!dim) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, dim);
  }
  return tuple;
}

static PyObject* tuple_of_shapes(const Shapes* shapes, size_t num_tensors) {
  PyObject* tuple = PyTuple_New((Py_ssize_t)num_tensors);
  size_t position = 0;
  for (size_t i = 0; tuple && i < num_tensors; i++) {
    const int64_t* dims;
    int64_t rank = next_shape(shapes, &position, &dims);
    PyObject* shape = rank == ABSENT ? Py_NewRef(Py_None) : tuple_of_dims(dims, rank);
    if (!shape) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, shape);
  }
  return tuple;
}

/* Append a shape given as a sequence of ints that are not negative. */
static int append_python_shape(Shapes* shapes, PyObject* shape) {
  PyObject* dims = PySequence_Fast(shape, "a shape must be a tuple of ints");
  if (!dims) return 0;
  Py_ssize_t rank = PySequence_Fast_GET_SIZE(dims);
  int is_right = reserve(shapes, 1 + (size_t)rank);
  if (!is_right) PyErr_NoMemory();
  if (is_right) shapes->words[shapes->count++] = (int64_t)rank;
  for (Py_ssize_t i = 0; is_right && i < rank; i++) {
    long long dim = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(dims, i));
    if (dim < 0 && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "a shape has the dimension %lld", dim);
    is_right = dim >= 0;
    shapes->words[shapes->count++] = (int64_t)dim;
  }
  Py_DECREF(dims);
  return is_right;
}

static int read_output_shapes(const State* state, Frame* frame, PyObject* outputs) {
  PyObject* shapes = PySequence_Fast(outputs, "resize must return a tuple with one shape for each output");
  if (!shapes) return 0;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(shapes);
  int is_right = count == (Py_ssize_t)state->num_outputs;
  if (!is_right) PyErr_Format(PyExc_ValueError, "resize gave %zd shapes for %zu outputs", count, state->num_outputs);
  frame->outputs.count = 0;
  for (Py_ssize_t i = 0; is_right && i < count; i++) {
    PyObject* shape = PySequence_Fast_GET_ITEM(shapes, i);
    if (shape != Py_None) is_right = append_python_shape(&frame->outputs, shape);
    else if (!(is_right = append_shape(&frame->outputs, UNKNOWN, NULL))) PyErr_NoMemory();
  }
  Py_DECREF(shapes);
  return is_right;
}

static PyObject* call_resize(const State* state, const Frame* frame) {
  PyObject* shapes = tuple_of_shapes(&frame->gathered, state->num_inputs);
  if (!shapes) return NULL;
  PyObject* stream = state->has_stream ? PyLong_FromVoidPtr(frame->pointers[num_pointers(state) - 1]) : NULL;
  PyObject* outputs = NULL;
  if (!PyErr_Occurred()) outputs = PyObject_CallMethodObjArgs(frame->object, name_resize, shapes, stream, NULL);
  Py_XDECREF(stream);
  Py_DECREF(shapes);
  return outputs;
}

/* Make the frame's object fit the shapes that were gathered. Returns 0 with an exception set. */
static int resize_frame(const State* state, Frame* frame) {
  frame->is_sized = 0;
  if (!frame->object && !(frame->object = PyObject_CallNoArgs(state->new_frame))) return 0;
  PyObject* outputs = call_resize(state, frame);
  int is_right = outputs && read_output_shapes(state, frame, outputs);
  Py_XDECREF(outputs);
  if (!is_right) return 0;
  PyObject* run = PyObject_GetAttr(frame->object, name_run);
  if (!run) return 0;
  Py_XSETREF(frame->run, run);
  Shapes old = frame->inputs;
  frame->inputs = frame->gathered;
  frame->gathered = old;
  frame->is_sized = 1;
  return 1;
}

/* The address that the tuple of the last run already has as an object, if it is the same. */
static PyObject* address_object(const Frame* frame, size_t index) {
  if (frame->addresses && frame->pointers[index] == frame->last_pointers[index])
    return Py_NewRef(PyTuple_GET_ITEM(frame->addresses, (Py_ssize_t)index));
  return PyLong_FromVoidPtr(frame->pointers[index]);
}

static int update_addresses(const State* state, Frame* frame) {
  size_t count = num_pointers(state), num_bytes = count * sizeof(void*);
  if (frame->addresses && memcmp(frame->pointers, frame->last_pointers, num_bytes) == 0) return 1;
  PyObject* addresses = PyTuple_New((Py_ssize_t)count);
  for (size_t i = 0; addresses && i < count; i++) {
    PyObject* address = address_object(frame, i);
    if (!address) {
      Py_DECREF(addresses);
      return 0;
    }
    PyTuple_SET_ITEM(addresses, (Py_ssize_t)i, address);
  }
  if (!addresses) return 0;
  Py_XSETREF(frame->addresses, addresses);
  memcpy(frame->last_pointers, frame->pointers, num_bytes);
  return 1;
}

/* Bytes of a contiguous tensor, or -1 with an exception set. */
static int64_t num_bytes_of(int type, const int64_t* dims, size_t rank) {
  int bits = type >= 0 && type < NUM_ELEMENT_TYPES ? ELEMENT_BITS[type] : 0;
  if (bits == 0) {
    PyErr_Format(PyExc_TypeError, "a result of element type %d cannot be copied", type);
    return -1;
  }
  int64_t num_bits = bits;
  for (size_t i = 0; i < rank; i++)
    if (dims[i] == 0) return 0;
  for (size_t i = 0; i < rank; i++)
    if (__builtin_mul_overflow(num_bits, dims[i], &num_bits) || num_bits > INT64_MAX - 7) {
      PyErr_SetString(PyExc_OverflowError, "a result is too large");
      return -1;
    }
  return (num_bits + 7) / 8;
}

/* Write one result to the output that has been made for it. Returns 0 with an exception set. */
static int write_result(const State* state, Frame* frame, size_t index, PyObject* source, void* target) {
  if (source == Py_None) {
    PyObject* done = PyObject_CallMethod(frame->object, "fill", "nN", (Py_ssize_t)index, PyLong_FromVoidPtr(target));
    Py_XDECREF(done);
    return done != NULL;
  }
  int64_t num_bytes = num_bytes_of(state->types[state->num_inputs + index], frame->gathered.words + 1,
                                   (size_t)frame->gathered.words[0]);
  const void* address = num_bytes < 0 ? NULL : PyLong_AsVoidPtr(source);
  if (PyErr_Occurred()) return 0;
  if (num_bytes > 0 && !address) {
    PyErr_Format(PyExc_ValueError, "the result of output %zu is at address 0", index);
    return 0;
  }
  if (num_bytes > 0) memcpy(target, address, (size_t)num_bytes);
  return 1;
}

/* One output whose shape the run has told. Sets *status, or returns 0 with an exception set. */
static int deliver_result(const State* state, Frame* frame, OrtKernelContext* context, size_t index,
                          OrtStatus** status) {
  PyObject* result = PyObject_CallMethod(frame->object, "result", "n", (Py_ssize_t)index);
  int is_right = result != NULL;
  if (result && !(PyTuple_Check(result) && PyTuple_GET_SIZE(result) == 2)) {
    PyErr_SetString(PyExc_TypeError, "result must return a tuple (address, shape)");
    is_right = 0;
  }
  frame->gathered.count = 0; /* its memory serves for the shape */
  is_right = is_right && append_python_shape(&frame->gathered, PyTuple_GET_ITEM(result, 1));
  if (is_right) {
    void* target;
    *status = get_output(state, context, index, frame->gathered.words + 1, (size_t)frame->gathered.words[0], &target);
    if (!*status && target) is_right = write_result(state, frame, index, PyTuple_GET_ITEM(result, 0), target);
  }
  Py_XDECREF(result);
  return is_right;
}

static int deliver_results(const State* state, Frame* frame, OrtKernelContext* context, OrtStatus** status) {
  size_t position = 0;
  const int64_t* dims;
  for (size_t i = 0; i < state->num_outputs && !*status; i++)
    if (next_shape(&frame->outputs, &position, &dims) == UNKNOWN && !deliver_result(state, frame, context, i, status))
      return 0;
  return 1;
}

/* Returns 0 with an exception set, or 1 with *status as it came from ONNX Runtime. */
static int run_frame(const State* state, Frame* frame, OrtKernelContext* context, OrtStatus** status) {
  if (!frame->is_sized) {
    if (!resize_frame(state, frame)) return 0;
    *status = get_known_outputs(state, frame, context);
    if (*status) return 1;
  }
  if (!update_addresses(state, frame)) return 0;
  PyObject* arguments[2] = {NULL, frame->addresses};
  PyObject* done = PyObject_Vectorcall(frame->run, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
  if (!done) return 0;
  Py_DECREF(done);
  return deliver_results(state, frame, context, status);
}

/* ---- runs that are broken off ---- */

/* Something to compute with: ones, because a division by zero would end the process, and false, which ends loops. */
static void fill_with_ones(char* data, int type, int64_t num_bytes) {
  static const float one_float = 1;
  static const double one_double = 1;
  static const uint64_t one_whole = 1;
  static const uint16_t one_half = 0x3C00, one_brain = 0x3F80;
  const void* one = &one_whole;
  size_t size = type > 0 && type < NUM_ELEMENT_TYPES ? (size_t)ELEMENT_BITS[type] / 8 : 0;
  if (type == FLOAT_TYPE) one = &one_float;
  if (type == DOUBLE_TYPE) one = &one_double;
  if (type == FLOAT16_TYPE) one = &one_half;
  if (type == BFLOAT16_TYPE) one = &one_brain;
  memset(data, 0, (size_t)num_bytes);
  if (type == BOOL_TYPE || size == 0 || size > sizeof one_whole) return;
  for (int64_t i = 0; i + (int64_t)size <= num_bytes; i += (int64_t)size) memcpy(data + i, one, size);
}

/* Give results of no meaning: the run goes on to its end, and what it makes is thrown away. Outputs whose shapes are not
   known are empty. Needs Python's lock. */
static OrtStatus* give_anything(const State* state, const Frame* frame, OrtKernelContext* context) {
  static const int64_t nothing[1] = {0};
  size_t position = 0;
  for (size_t i = 0; i < state->num_outputs; i++) {
    const int64_t* dims = nothing;
    int64_t rank = frame->is_sized ? next_shape(&frame->outputs, &position, &dims) : UNKNOWN;
    if (rank == UNKNOWN) dims = nothing, rank = 1;
    int type = state->types[state->num_inputs + i];
    void* address;
    OrtStatus* status = get_output(state, context, i, dims, (size_t)rank, &address);
    if (status) return status;
    int64_t num_bytes = num_bytes_of(type, dims, (size_t)rank);
    PyErr_Clear();
    if (address && num_bytes > 0) fill_with_ones(address, type, num_bytes);
  }
  return NULL;
}

/* What Python raised, as ONNX Runtime is told of it: an error is a status. Anything else, such as Ctrl-C and exit, is
   kept for the caller; on a device nothing can be written here, so there it is a status too. */
static OrtStatus* end_with_exception(const State* state, const Frame* frame, OrtKernelContext* context) {
  PyObject* exception = take_exception();
  int is_error = !exception || PyObject_IsInstance(exception, PyExc_Exception) != 0;
  int is_kept = !is_error && keep_interrupt(state->ep, exception) && !state->has_stream;
  OrtStatus* status = is_kept ? give_anything(state, frame, context) : fail_with_exception(state, exception);
  Py_XDECREF(exception);
  return status;
}

static OrtStatus* run_with_lock(State* state, Frame* frame, OrtKernelContext* context) {
  __attribute__((cleanup(stop_if_unwinding))) volatile int is_inside = 1;
  OrtStatus* status = NULL;
  PyGILState_STATE lock = PyGILState_Ensure();
  if (!state->has_stream && is_interrupted(state->ep)) {
    status = give_anything(state, frame, context);
    put_frame_back(state, frame);
  } else if (run_frame(state, frame, context, &status)) {
    put_frame_back(state, frame);
  } else {
    status = end_with_exception(state, frame, context);
    free_frame(frame);
  }
  PyGILState_Release(lock);
  is_inside = 0;
  return status;
}

/* ---- what ONNX Runtime calls ---- */

static OrtStatus* compute(void* info, void* state_pointer, OrtKernelContext* context) {
  State* state = state_pointer;
  (void)info;
  if (must_not_return()) block_forever();
  if (is_python_gone()) return fail(state, "the Python interpreter has shut down");
  Frame* frame = take_frame(state);
  if (!frame) return fail(state, "out of memory");
  OrtStatus* status = gather_inputs(state, frame, context);
  if (!status) {
    frame->is_sized = frame->is_sized && same_shapes(&frame->gathered, &frame->inputs);
    if (frame->is_sized) status = get_known_outputs(state, frame, context);
  }
  if (!status) return run_with_lock(state, frame, context);
  put_frame_back(state, frame);
  return status;
}

static OrtStatus* kernel_compute(void* kernel, OrtKernelContext* context) {
  void* state;
  memcpy(&state, (char*)kernel + KERNEL_STATE_OFFSET, sizeof state);
  return compute(kernel, state, context);
}

/* For OrtEp::OnRunStart and OnRunEnd. */
static OrtStatus* run_start(void* ep, const void* options) {
  begin_run(ep, options);
  hold_run(ep);
  return NULL;
}

static OrtStatus* run_end(void* ep, const void* options, _Bool is_awaited) {
  __attribute__((cleanup(stop_if_unwinding))) volatile int is_inside = 1;
  (void)options, (void)is_awaited;
  hold_run(ep);
  if (!is_python_gone()) end_run(ep);
  is_inside = 0;
  return NULL;
}

/* ---- the module ---- */

static int read_slot(PyObject* slots, void* const* table, const char* name, void* target) {
  PyObject* slot = PyMapping_GetItemString(slots, name);
  Py_ssize_t index = slot ? PyLong_AsSsize_t(slot) : -1;
  Py_XDECREF(slot);
  if (PyErr_Occurred()) return 0;
  if (index < 0 || !table[index]) {
    PyErr_Format(PyExc_ValueError, "slot %zd of OrtApi, %s, is empty", index, name);
    return 0;
  }
  memcpy(target, &table[index], sizeof table[index]);
  return 1;
}

static int read_api(Api* api, PyObject* slots) {
  void* const* table = api->address;
  return read_slot(slots, table, "CreateStatus", &api->CreateStatus) &&
         read_slot(slots, table, "KernelContext_GetInput", &api->GetInput) &&
         read_slot(slots, table, "KernelContext_GetOutput", &api->GetOutput) &&
         read_slot(slots, table, "GetTensorMutableData", &api->GetData) &&
         read_slot(slots, table, "GetTensorElementTypeAndShapeDataReference", &api->GetTypeAndShape) &&
         read_slot(slots, table, "KernelContext_GetGPUComputeStream", &api->GetStream);
}

PyDoc_STRVAR(attach_doc,
             "attach(api_address, slots)\n--\n\n"
             "Take the functions of one OrtApi table; slots gives the place of each by its name.\n\n"
             "States made from now on use them. Each ONNX Runtime of a process has a table of its own.");

static PyObject* attach(PyObject* module, PyObject* arguments) {
  PyObject *address, *slots;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "OO:attach", &address, &slots)) return NULL;
  Api* api = calloc(1, sizeof *api);
  if (!api) return PyErr_NoMemory();
  api->address = PyLong_AsVoidPtr(address);
  if (!api->address && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the address of OrtApi is 0");
  if (PyErr_Occurred() || !read_api(api, slots)) {
    free(api);
    return NULL;
  }
  pthread_mutex_lock(&registry_lock);
  Api** link = &attached;
  while (*link && (*link)->address != api->address) link = &(*link)->next;
  Api* old = *link;
  if (old) *link = old->next;
  api->next = attached;
  attached = api;
  pthread_mutex_unlock(&registry_lock);
  free(old); /* states have copies */
  Py_RETURN_NONE;
}

/* The table that was attached last, or the one at an address. */
static int find_api(PyObject* wanted, Api* found) {
  void* address = wanted == Py_None ? NULL : PyLong_AsVoidPtr(wanted);
  if (PyErr_Occurred()) return 0;
  pthread_mutex_lock(&registry_lock);
  const Api* api = attached;
  while (api && address && api->address != address) api = api->next;
  if (api) *found = *api;
  pthread_mutex_unlock(&registry_lock);
  if (!api) PyErr_SetString(PyExc_RuntimeError, "no such OrtApi has been attached");
  return api != NULL;
}

static int read_types(PyObject* types, size_t count, const char* what, int* target) {
  PyObject* items = PySequence_Fast(types, "element types must be a tuple of ints");
  if (!items) return 0;
  if ((size_t)PySequence_Fast_GET_SIZE(items) != count)
    PyErr_Format(PyExc_ValueError, "there are %zu %s and %zd element types", count, what,
                 PySequence_Fast_GET_SIZE(items));
  for (size_t i = 0; i < count && !PyErr_Occurred(); i++)
    target[i] = (int)PyLong_AsLong(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i));
  Py_DECREF(items);
  return !PyErr_Occurred();
}

static void free_state(State* state) {
  while (state->free_frames) {
    Frame* frame = state->free_frames;
    state->free_frames = frame->next;
    free_frame(frame);
  }
  Py_XDECREF(state->new_frame);
  pthread_mutex_destroy(&state->lock);
  free(state->types);
  free(state);
}

PyDoc_STRVAR(create_state_doc,
             "create_state(new_frame, num_inputs, num_outputs, input_types, output_types, api_address=None,\n"
             "             has_stream=False, ep_address=0)\n--\n\n"
             "Make the state of one partition and return its address.\n\n"
             "new_frame() makes what runs the partition on one thread. Types are ONNXTensorElementDataType numbers; an input\n"
             "of type 0 is not checked.\n"
             "Without api_address the state uses the table that was attached last. With has_stream the addresses of a run\n"
             "end with the handle of the stream that ONNX Runtime runs it on. ep_address is the OrtEp whose runs it is in.");

static PyObject* create_state(PyObject* module, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"new_frame", "num_inputs", "num_outputs", "input_types", "output_types", "api_address",
                          "has_stream", "ep_address", NULL};
  PyObject *new_frame, *input_types, *output_types, *api_address = Py_None, *ep = NULL;
  Py_ssize_t num_inputs, num_outputs;
  int has_stream = 0;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OnnOO|OpO:create_state", names, &new_frame, &num_inputs,
                                   &num_outputs, &input_types, &output_types, &api_address, &has_stream, &ep))
    return NULL;
  if (num_inputs < 0 || num_outputs < 0)
    return PyErr_Format(PyExc_ValueError, "%zd inputs and %zd outputs", num_inputs, num_outputs);
  State* state = calloc(1, sizeof *state);
  if (!state) return PyErr_NoMemory();
  pthread_mutex_init(&state->lock, NULL);
  state->new_frame = Py_NewRef(new_frame);
  state->num_inputs = (size_t)num_inputs;
  state->num_outputs = (size_t)num_outputs;
  state->has_stream = has_stream;
  state->ep = ep ? PyLong_AsVoidPtr(ep) : NULL;
  state->types = calloc(num_pointers(state) + 1, sizeof *state->types);
  if (!state->types) PyErr_NoMemory();
  if (PyErr_Occurred() || !find_api(api_address, &state->api) ||
      !read_types(input_types, state->num_inputs, "inputs", state->types) ||
      !read_types(output_types, state->num_outputs, "outputs", state->types + num_inputs)) {
    free_state(state);
    return NULL;
  }
  pthread_mutex_lock(&registry_lock);
  state->next = states;
  states = state;
  pthread_mutex_unlock(&registry_lock);
  return PyLong_FromVoidPtr(state);
}

PyDoc_STRVAR(release_state_doc,
             "release_state(address)\n--\n\n"
             "Free a state and its frames. No run of it may be under way.");

static PyObject* release_state(PyObject* module, PyObject* address) {
  (void)module;
  void* wanted = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return NULL;
  pthread_mutex_lock(&registry_lock);
  State** link = &states;
  while (*link && *link != wanted) link = &(*link)->next;
  State* state = *link;
  if (state) *link = state->next;
  pthread_mutex_unlock(&registry_lock);
  if (!state) return PyErr_Format(PyExc_ValueError, "there is no state at address %p", wanted);
  free_state(state);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(compute_address_doc,
             "compute_address()\n--\n\n"
             "Return the address of the function for OrtNodeComputeInfo::Compute.");

static PyObject* compute_address(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyLong_FromVoidPtr((void*)compute);
}

PyDoc_STRVAR(kernel_compute_address_doc,
             "kernel_compute_address()\n--\n\n"
             "Return the address of the function for OrtKernelImpl::Compute.\n\n"
             "It reads the address of the state KERNEL_STATE_OFFSET bytes after the start of the OrtKernelImpl.");

static PyObject* kernel_compute_address(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyLong_FromVoidPtr((void*)kernel_compute);
}

PyDoc_STRVAR(run_start_address_doc,
             "run_start_address()\n--\n\n"
             "Return the address of the function for OrtEp::OnRunStart.");

static PyObject* run_start_address(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyLong_FromVoidPtr((void*)run_start);
}

PyDoc_STRVAR(run_end_address_doc,
             "run_end_address()\n--\n\n"
             "Return the address of the function for OrtEp::OnRunEnd.");

static PyObject* run_end_address(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyLong_FromVoidPtr((void*)run_end);
}

PyDoc_STRVAR(note_run_start_doc,
             "note_run_start(ep_address, options_address)\n--\n\n"
             "Do what OnRunStart does, for an OrtEp that has one of its own.");

static PyObject* note_run_start(PyObject* module, PyObject* arguments) {
  PyObject *ep, *options;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "OO:note_run_start", &ep, &options)) return NULL;
  const void* addresses[2] = {PyLong_AsVoidPtr(ep), PyLong_AsVoidPtr(options)};
  if (PyErr_Occurred()) return NULL;
  begin_run(addresses[0], addresses[1]);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(note_run_end_doc,
             "note_run_end(ep_address)\n--\n\n"
             "Do what OnRunEnd does, for an OrtEp that has one of its own.");

static PyObject* note_run_end(PyObject* module, PyObject* ep) {
  (void)module;
  const void* address = PyLong_AsVoidPtr(ep);
  if (PyErr_Occurred()) return NULL;
  end_run(address);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(check_run_doc,
             "check_run(ep_address, offset, error)\n--\n\n"
             "Raise an error where the run of an OrtEp on this thread is to end.\n\n"
             "offset is where in OrtRunOptions that stands.");

static PyObject* check_run(PyObject* module, PyObject* const* arguments, Py_ssize_t count) {
  (void)module;
  if (count != 3) return PyErr_Format(PyExc_TypeError, "check_run takes 3 arguments, not %zd", count);
  const void* ep = PyLong_AsVoidPtr(arguments[0]);
  Py_ssize_t offset = PyLong_AsSsize_t(arguments[1]);
  if (PyErr_Occurred()) return NULL;
  if (!is_terminated(ep, offset)) Py_RETURN_NONE;
  PyErr_SetString(arguments[2], "Exiting due to terminate flag being set to true.");
  return NULL;
}

PyDoc_STRVAR(set_carrier_doc,
             "set_carrier(make)\n--\n\n"
             "Say what makes, of an exception, a class that gives the exception when it is called.");

static PyObject* set_carrier(PyObject* module, PyObject* make) {
  (void)module;
  Py_XSETREF(make_carrier, Py_NewRef(make));
  Py_RETURN_NONE;
}

PyDoc_STRVAR(start_closing_doc,
             "start_closing(max_hold_ms)\n--\n\n"
             "Hold the runs of other threads where they begin and end, for a number of milliseconds at most unless the\n"
             "interpreter finalizes.");

static PyObject* start_closing(PyObject* module, PyObject* max_hold_ms) {
  (void)module;
  long milliseconds = PyLong_AsLong(max_hold_ms);
  if (milliseconds == -1 && PyErr_Occurred()) return NULL;
  start_closing_now((int64_t)milliseconds * 1000000);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(running_threads_doc,
             "running_threads()\n--\n\n"
             "Return the identifiers of the threads that are between the start and the end of a run.");

static PyObject* running_threads(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  PyObject* threads = PyList_New(0);
  pthread_mutex_lock(&runs_lock);
  for (const Run* run = runs; run && threads; run = run->next) {
    PyObject* thread = PyLong_FromUnsignedLong((unsigned long)run->thread);
    if (!thread || PyList_Append(threads, thread)) Py_CLEAR(threads);
    Py_XDECREF(thread);
  }
  pthread_mutex_unlock(&runs_lock);
  return threads;
}

PyDoc_STRVAR(gate_address_doc,
             "gate_address(index, num_arguments)\n--\n\n"
             "Return the address of the gate for a slot, a function that calls the one GATE_OFFSET words after the slot.\n\n"
             "A thread that Python ends inside of the call is blocked instead. The first argument of the function is the\n"
             "address of the object with the slots; all arguments are integers or pointers.");

static PyObject* gate_address(PyObject* module, PyObject* arguments) {
  Py_ssize_t index, num_arguments;
  (void)module;
  if (!PyArg_ParseTuple(arguments, "nn:gate_address", &index, &num_arguments)) return NULL;
  if (index < 0 || index >= GATE_OFFSET || num_arguments < 1 || num_arguments > NUM_WIDE_ARGUMENTS)
    return PyErr_Format(PyExc_ValueError, "no gate for slot %zd with %zd arguments", index, num_arguments);
  if (num_arguments > NUM_NARROW_ARGUMENTS) return PyLong_FromVoidPtr((void*)wide_gates[index]);
  return PyLong_FromVoidPtr((void*)narrow_gates[index]);
}

PyDoc_STRVAR(thread_number_doc,
             "thread_number()\n--\n\n"
             "Return the number of this thread, which no other thread of the process has or will have.");

static PyObject* thread_number(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  unsigned long long number = number_of_thread();
  return number ? PyLong_FromUnsignedLongLong(number) : PyErr_NoMemory();
}

PyDoc_STRVAR(is_thread_alive_doc,
             "is_thread_alive(number)\n--\n\n"
             "Return whether the thread of a number has not ended.");

static PyObject* is_thread_alive(PyObject* module, PyObject* number) {
  (void)module;
  unsigned long long wanted = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return NULL;
  return PyBool_FromLong(is_thread_live(wanted));
}

static int execute_module(PyObject* module) {
  name_resize = PyUnicode_InternFromString("resize");
  name_run = PyUnicode_InternFromString("run");
  if (!name_resize || !name_run) return -1;
  if (PyModule_AddIntMacro(module, GATE_OFFSET)) return -1;
  return PyModule_AddIntMacro(module, KERNEL_STATE_OFFSET);
}

static PyMethodDef methods[] = {
    {"attach", attach, METH_VARARGS, attach_doc},
    {"create_state", (PyCFunction)(void (*)(void))create_state, METH_VARARGS | METH_KEYWORDS, create_state_doc},
    {"release_state", release_state, METH_O, release_state_doc},
    {"compute_address", compute_address, METH_NOARGS, compute_address_doc},
    {"kernel_compute_address", kernel_compute_address, METH_NOARGS, kernel_compute_address_doc},
    {"run_start_address", run_start_address, METH_NOARGS, run_start_address_doc},
    {"run_end_address", run_end_address, METH_NOARGS, run_end_address_doc},
    {"note_run_start", note_run_start, METH_VARARGS, note_run_start_doc},
    {"note_run_end", note_run_end, METH_O, note_run_end_doc},
    {"check_run", (PyCFunction)(void (*)(void))check_run, METH_FASTCALL, check_run_doc},
    {"set_carrier", set_carrier, METH_O, set_carrier_doc},
    {"start_closing", start_closing, METH_O, start_closing_doc},
    {"running_threads", running_threads, METH_NOARGS, running_threads_doc},
    {"gate_address", gate_address, METH_VARARGS, gate_address_doc},
    {"thread_number", thread_number, METH_NOARGS, thread_number_doc},
    {"is_thread_alive", is_thread_alive, METH_O, is_thread_alive_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void*)execute_module},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_compute",
    .m_doc = "The fast Compute: what ONNX Runtime calls to run a partition.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__compute(void) { return PyModuleDef_Init(&definition); }
