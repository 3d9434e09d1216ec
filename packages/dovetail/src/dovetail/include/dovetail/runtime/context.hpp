// One caller's runs of a plan.
#pragma once

#include "tensor.hpp"

namespace dovetail
{

// The state of one caller: memory, shapes, a profile. A context may be used by one thread at a time.
class Context
{
public:
    Context(Context&&) = default;
    Context& operator=(Context&& other) noexcept
    {
        std::swap(mEngine, other.mEngine);
        std::swap(mObject, other.mObject);
        std::swap(mRun, other.mRun);
        std::swap(mInputs, other.mInputs);
        return *this;
    }
    ~Context()
    {
        mObject.close();
    }

    // Reads an input from memory of the program's, which must stay until run() is done; nothing is copied on a CPU.
    // It is read in every run until another memory is set.
    void setInput(
        std::string const& name, void const* data, size_t sizeBytes, Shape const& shape, Memory memory = Memory::kHOST)
    {
        size_t const index = engine().find(name, true);
        Given given{data, sizeBytes, shape, memory};
        if (mInputs[index] == given)
        {
            return;
        }
        mInputs[index] = {};
        detail::Lock lock;
        detail::Local dims = detail::makeShape(shape);
        detail::check(
            PyObject_CallMethod(mObject.get(), "set_input", "nKnOi", static_cast<Py_ssize_t>(index), address(data),
                static_cast<Py_ssize_t>(sizeBytes), dims.get(), static_cast<int>(memory == Memory::kTENSOR)));
        mInputs[index] = std::move(given);
    }
    // The same with elements of a known type; there must be as many as the shape says.
    template <typename T, typename = decltype(ElementName<T>::value)>
    void setInput(
        std::string const& name, T const* data, size_t count, Shape const& shape, Memory memory = Memory::kHOST)
    {
        detail::requireType(engine().tensors[engine().find(name, true)], ElementName<T>::value);
        requireCount(name, count, shape);
        setInput(name, static_cast<void const*>(data), count * sizeof(T), shape, memory);
    }
    template <typename Container,
        typename T = std::remove_const_t<std::remove_pointer_t<decltype(std::declval<Container const&>().data())>>>
    void setInput(std::string const& name, Container const& elements, Shape const& shape)
    {
        setInput<T>(name, elements.data(), elements.size(), shape);
    }
    // A temporary would be gone before the run.
    template <typename T>
    void setInput(std::string const& name, std::vector<T>&& elements, Shape const& shape) = delete;

    // Writes an output to memory of the program's from the next run on; nothing is copied on a CPU.
    void setOutput(std::string const& name, void* data, size_t sizeBytes, Memory memory = Memory::kHOST)
    {
        size_t const index = engine().find(name, false);
        detail::Lock lock;
        detail::check(PyObject_CallMethod(mObject.get(), "set_output", "nKni", static_cast<Py_ssize_t>(index),
            address(data), static_cast<Py_ssize_t>(sizeBytes), static_cast<int>(memory == Memory::kTENSOR)));
    }
    template <typename T>
    void setOutput(std::string const& name, Span<T> elements, Memory memory = Memory::kHOST)
    {
        detail::requireType(engine().tensors[engine().find(name, false)], ElementName<T>::value);
        setOutput(name, elements.data(), elements.size() * sizeof(T), memory);
    }

    // Chooses the profile; shapes that do not fit it must be set again.
    void setProfile(int32_t profile)
    {
        requireHere();
        mInputs.assign(mInputs.size(), {}); // what is set again is checked against this profile
        detail::Lock lock;
        detail::check(PyObject_CallMethod(mObject.get(), "set_profile", "i", profile));
    }

    // The shape of a tensor for the inputs that are set; -1 for what is not known before a run.
    Shape shape(std::string const& name) const
    {
        detail::Lock lock;
        size_t index = 0;
        for (; index < engine().tensors.size() && engine().tensors[index].name != name; ++index)
        {
        }
        index = index < engine().tensors.size() ? index : engine().find(name, false);
        detail::Local dims
            = detail::check(PyObject_CallMethod(mObject.get(), "find_shape", "n", static_cast<Py_ssize_t>(index)));
        return detail::readShape(dims.get());
    }

    // Runs. With the handle of a stream of the device (a cudaStream_t) the work is put on it; when all memory is the
    // device's own, nobody waits for it then. Without one everything is done when this returns.
    void run(void* stream = nullptr)
    {
        requireHere();
        detail::Lock lock;
        detail::Local handle = detail::check(PyLong_FromVoidPtr(stream));
        detail::check(PyObject_CallFunctionObjArgs(mRun.get(), handle.get(), nullptr));
    }

    // The result of the last run, handed over: it is given once for each run.
    Tensor output(std::string const& name)
    {
        size_t const index = engine().find(name, false);
        detail::Lock lock;
        detail::Local result
            = detail::check(PyObject_CallMethod(mObject.get(), "take_output", "n", static_cast<Py_ssize_t>(index)));
        return {engine().tensors[index], mObject.interpreter(), result.get()};
    }

private:
    friend class Engine;

    struct Given
    {
        void const* data{nullptr};
        size_t sizeBytes{0};
        Shape shape;
        Memory memory{Memory::kHOST};
        bool operator==(Given const& other) const
        {
            return data != nullptr && data == other.data && sizeBytes == other.sizeBytes && shape == other.shape
                   && memory == other.memory;
        }
    };

    Context(std::shared_ptr<detail::EngineState> engine, detail::Local made)
        : mEngine(std::move(engine))
        , mObject(mEngine->object.interpreter(), std::move(made))
        , mRun(mEngine->object.interpreter(), detail::check(PyObject_GetAttrString(mObject.get(), "run")))
        , mInputs(mEngine->tensors.size())
    {
    }

    void requireHere() const
    {
        if (!mEngine)
        {
            throw Error("UsageError", "this context was moved to another object, which has taken its place");
        }
    }

    detail::EngineState const& engine() const
    {
        requireHere();
        return *mEngine;
    }

    static unsigned long long address(void const* data) noexcept
    {
        return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(data));
    }

    static void requireCount(std::string const& name, size_t count, Shape const& shape)
    {
        uint64_t expected = 1;
        for (int64_t size : shape)
        {
            if (size < 0 || (size != 0 && expected > UINT64_MAX / static_cast<uint64_t>(size)))
            {
                throw Error("InputError", "input '" + name + "': a shape has a dimension that cannot be");
            }
            expected *= static_cast<uint64_t>(size);
        }
        if (expected != count)
        {
            throw Error("InputError", "input '" + name + "': another number of elements than the shape says; expected "
                                          + std::to_string(expected) + ", got " + std::to_string(count));
        }
    }

    std::shared_ptr<detail::EngineState> mEngine;
    detail::Object mObject;
    detail::Object mRun;
    std::vector<Given> mInputs;
};

} // namespace dovetail
