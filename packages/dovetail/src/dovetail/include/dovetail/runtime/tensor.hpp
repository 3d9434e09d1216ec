// The result of a run.
#pragma once

#include "engine_state.hpp"

#include <type_traits>

namespace dovetail
{

// A result. It owns its memory, which no later run changes and which may outlive the context and the engine. Only for
// outputs that setOutput or an input gave memory it is a view of that memory.
class Tensor
{
public:
    std::string const& type() const noexcept
    {
        return mInfo.type;
    }
    Shape const& shape() const noexcept
    {
        return mShape;
    }
    size_t sizeBytes() const noexcept
    {
        return mSizeBytes;
    }
    void* data() const noexcept
    {
        return mData;
    }
    // Whether the memory is this object's own.
    bool isOwner() const noexcept
    {
        return mOwner.get() != nullptr;
    }
    // The elements, as they lie in memory; throws when they are of another type.
    template <typename T>
    Span<T> view() const
    {
        detail::requireType(mInfo, ElementName<std::remove_const_t<T>>::value);
        return {static_cast<T*>(mData), mSizeBytes / sizeof(T)};
    }

private:
    friend class Context;
    Tensor(TensorInfo info, std::shared_ptr<detail::Interpreter> interpreter, PyObject* result)
        : mInfo(std::move(info))
        , mData(PyLong_AsVoidPtr(PyTuple_GetItem(result, 0)))
        , mSizeBytes(PyLong_AsSize_t(PyTuple_GetItem(result, 1)))
        , mShape(detail::readShape(PyTuple_GetItem(result, 2)))
        , mOwner(std::move(interpreter), own(PyTuple_GetItem(result, 3)))
    {
    }
    static detail::Local own(PyObject* owner)
    {
        Py_INCREF(owner);
        detail::Local held(owner);
        return owner == Py_None ? detail::Local() : std::move(held);
    }

    TensorInfo mInfo;
    void* mData;
    size_t mSizeBytes;
    Shape mShape;
    detail::Object mOwner;
};

} // namespace dovetail
