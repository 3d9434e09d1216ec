// What an engine and its contexts share: the object of Python behind them, and its tensors.
#pragma once

#include "convert.hpp"
#include "interpreter.hpp"

namespace dovetail
{
namespace detail
{

// An object of Python with the interpreter that it needs.
class Object
{
public:
    Object(std::shared_ptr<Interpreter> interpreter, Local object)
        : mInterpreter(std::move(interpreter))
        , mObject(object.release())
    {
    }
    Object(Object&& other) noexcept
        : mInterpreter(std::move(other.mInterpreter))
        , mObject(std::exchange(other.mObject, nullptr))
    {
    }
    Object& operator=(Object&& other) noexcept
    {
        std::swap(mInterpreter, other.mInterpreter);
        std::swap(mObject, other.mObject);
        return *this;
    }
    ~Object()
    {
        if (mObject != nullptr)
        {
            Lock lock;
            Py_DECREF(mObject);
        }
    }
    PyObject* get() const noexcept
    {
        return mObject;
    }
    std::shared_ptr<Interpreter> const& interpreter() const noexcept
    {
        return mInterpreter;
    }
    // Calls close(), whose failure nobody can be told of.
    void close() noexcept
    {
        if (mObject != nullptr)
        {
            Lock lock;
            Local done(PyObject_CallMethod(mObject, "close", nullptr));
            PyErr_Clear();
        }
    }

private:
    std::shared_ptr<Interpreter> mInterpreter;
    PyObject* mObject;
};

using LogFunction = std::function<void(LogLevel, std::string const&)>;

// What the engine and its contexts share.
struct EngineState
{
    EngineState(std::unique_ptr<LogFunction> logFunction, std::shared_ptr<Interpreter> interpreter, Local made)
        : log(std::move(logFunction))
        , object(std::move(interpreter), std::move(made))
    {
        Local facts = check(PyObject_CallMethod(object.get(), "describe", nullptr));
        name = readText(facts.get(), 0);
        numProfiles = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(facts.get(), 1)));
        PyObject* listed = PyTuple_GetItem(facts.get(), 2);
        for (Py_ssize_t i = 0; i < PyTuple_Size(listed); ++i)
        {
            tensors.push_back(readTensor(PyTuple_GetItem(listed, i)));
        }
    }
    ~EngineState()
    {
        object.close();
    }
    EngineState(EngineState const&) = delete;
    EngineState& operator=(EngineState const&) = delete;

    size_t find(std::string const& wanted, bool isInput) const
    {
        std::string known;
        for (size_t i = 0; i < tensors.size(); ++i)
        {
            if (tensors[i].isInput == isInput && tensors[i].name == wanted)
            {
                return i;
            }
            known += tensors[i].isInput != isInput ? "" : (known.empty() ? "" : ", ") + tensors[i].name;
        }
        std::string const kind = isInput ? "input" : "output";
        throw Error(
            "UsageError", "there is no " + kind + " '" + wanted + "'; expected " + (known.empty() ? "none" : known));
    }

    std::unique_ptr<LogFunction> log; // outlives the object, which may log while it is closed
    Object object;
    std::string name;
    int32_t numProfiles;
    std::vector<TensorInfo> tensors;
};

inline void requireType(TensorInfo const& tensor, std::string const& type)
{
    if (tensor.type != type)
    {
        throw Error("InputError", (tensor.isInput ? "input '" : "output '") + tensor.name
                                      + "': the elements are of another type; expected " + tensor.type + ", got "
                                      + type);
    }
}

} // namespace detail
} // namespace dovetail
