/* The parts that the files of the extension share. The module hvd._core passes the calls of Python
 * on to <hvd/c_api.h>, in CPython's limited API: one binary serves every Python from 3.10.
 *
 * A tensor is a tuple here: (address, shape, type, device), with the numbers of c_api.h. No thread
 * of hvd ever takes the GIL: callbacks of hvd touch plain C memory only. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <hvd/c_api.h>

/* --- errors (errors.c) --- */

/* The text of hvd_last_error() on a thread, to be raised on another one. */
typedef struct failure_text {
  int64_t code;
  int rank;
  char* text;
  char* host;
  char* cause;
} failure_text;

/* Of this thread, which has just got `code`; null: there is no memory for it. */
failure_text* take_failure(int64_t code);
void free_failure(failure_text* failure);
/* Sets the exception that stands for it, and returns null. With a null failure: of `code`. */
PyObject* raise_failure(const failure_text* failure, int64_t code);
/* The same, of this thread's last failure. */
PyObject* raise_code(int64_t code);
/* None, or the exception of the code. */
PyObject* none_or_raise(int64_t code);
/* set_errors({code: class, ...}): what each code raises. */
PyObject* set_errors(PyObject* module, PyObject* classes);

/* --- waiting (blocking.c) --- */

/* Calls `call(data)` on a thread of its own and waits for it in slices, so that signals, Ctrl-C
 * among them, are handled meanwhile. Negative results are codes of hvd. Writes the result into
 * `result` and returns 0; else an exception is set: that of the code, or that of a signal's handler
 * - then the call goes on, and what `data` points to must stay for ever. */
typedef int64_t (*blocking_call)(void* data);
int run_blocking(blocking_call call, void* data, int64_t* result);
/* Waits for the work in the same way. 0, or -1 with an exception. */
int wait_for_work(hvd_handle handle);

/* --- tensors (tensors.c) --- */

enum { kMaxDimensions = 64 };

typedef struct shaped_tensor {
  hvd_tensor tensor;
  int64_t shape[kMaxDimensions];
} shaped_tensor;

/* 0, or -1 with an exception. The tensor points into itself. */
int read_tensor(PyObject* from, shaped_tensor* into);
PyObject* tensor_tuple(const hvd_tensor* tensor);
/* A list of them, as an array that PyMem_Free() frees and whose shapes lie behind it. Null: an
 * exception. */
hvd_tensor* read_tensors(PyObject* list, Py_ssize_t* count);

/* --- memory in flight that no object of Python holds any more (work.c) --- */

/* Work of some kind: 1 while hvd reads or writes its memory, and how it is let go then. */
typedef struct abandoned_kind {
  int (*in_flight)(int64_t handle);
  int (*release)(int64_t handle);
} abandoned_kind;

/* Takes over `keep`, which owns the memory of this work, until that is done. Without memory for a
 * note of it, it stays alive for ever. */
void abandon(int64_t handle, const abandoned_kind* kind, PyObject* keep);
/* Lets go what is done by now. New work begins with it. */
void sweep_abandoned(void);

/* --- the parts of the module (memory.c, work.c, reducer.c, state.c, xla.c) --- */

/* Adds a type to the module. 0, or -1 with an exception. */
int add_type(PyObject* module, PyType_Spec* spec);
int add_memory(PyObject* module);
int add_work(PyObject* module);
int add_reducer(PyObject* module);
int add_state(PyObject* module);
int add_xla(PyObject* module);
