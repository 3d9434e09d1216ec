// Values between C++ and Python; all of it is called under the lock.
#pragma once

#include "python.hpp"
#include "types.hpp"

namespace dovetail
{
namespace detail
{

inline Local makeText(std::string const& text)
{
    return check(PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

inline Local makeShape(Shape const& shape)
{
    Local tuple = check(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
    for (size_t i = 0; i < shape.size(); ++i)
    {
        PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLongLong(shape[i])).release());
    }
    return tuple;
}

inline Shape readShape(PyObject* tuple)
{
    Shape shape(static_cast<size_t>(PyTuple_Size(tuple)));
    for (size_t i = 0; i < shape.size(); ++i)
    {
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i)));
    }
    return shape;
}

inline std::string readText(PyObject* tuple, Py_ssize_t index)
{
    return asText(PyTuple_GetItem(tuple, index));
}

inline TensorInfo readTensor(PyObject* facts)
{
    PyObject* shape = PyTuple_GetItem(facts, 5);
    bool const hasRank = shape != Py_None;
    return {readText(facts, 0), PyObject_IsTrue(PyTuple_GetItem(facts, 1)) == 1, readText(facts, 2),
        static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(facts, 3))), readText(facts, 4), hasRank,
        hasRank ? readShape(shape) : Shape{}, readText(facts, 6), readText(facts, 7)};
}

} // namespace detail
} // namespace dovetail
