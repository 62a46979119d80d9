// What every file of the binding includes: Python, nanobind and NumPy's C API, in the order they want.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#define PY_ARRAY_UNIQUE_SYMBOL shmreplay_numpy_api
#ifndef SHMREPLAY_IMPORT_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

namespace nb = nanobind;
