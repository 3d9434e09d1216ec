// Objects of Python: the lock around them, references, and errors as C++ exceptions.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "error.hpp"

#include <memory>
#include <mutex>

namespace dovetail
{
namespace detail
{

// The interpreter while it lives; written by who starts it, under the mutex.
inline std::weak_ptr<void>& runningInterpreter()
{
    static std::weak_ptr<void> running;
    return running;
}

inline std::mutex& interpreterMutex()
{
    static std::mutex mutex;
    return mutex;
}

// Keeps what the interpreter knows of a thread from one call to the next; making it anew costs more than most calls.
class ThreadState
{
public:
    ThreadState()
        : mInterpreter(findInterpreter())
        , mState(PyGILState_Ensure())
        , mSaved(PyEval_SaveThread())
    {
    }
    ~ThreadState()
    {
        std::shared_ptr<void> const alive = mInterpreter.lock();
        if (alive != nullptr)
        {
            PyEval_RestoreThread(mSaved);
            PyGILState_Release(mState);
        }
    }
    ThreadState(ThreadState const&) = delete;
    ThreadState& operator=(ThreadState const&) = delete;

private:
    static std::weak_ptr<void> findInterpreter()
    {
        std::lock_guard<std::mutex> guard(interpreterMutex());
        return runningInterpreter();
    }

    std::weak_ptr<void> mInterpreter;
    PyGILState_STATE mState;
    PyThreadState* mSaved;
};

// Holds the interpreter's lock.
class BareLock
{
public:
    BareLock()
        : mState(PyGILState_Ensure())
    {
    }
    ~BareLock()
    {
        PyGILState_Release(mState);
    }
    BareLock(BareLock const&) = delete;
    BareLock& operator=(BareLock const&) = delete;

private:
    PyGILState_STATE mState;
};

// The same for calls that a thread makes again and again.
class Lock
{
public:
    Lock()
        : mIsKnown(meetThread())
    {
    }

private:
    static bool meetThread()
    {
        if (!PyGILState_Check())
        {
            static thread_local ThreadState const state;
            static_cast<void>(state);
        }
        return true;
    }

    bool mIsKnown;
    BareLock mLock;
};

// A reference that is dropped under a lock that somebody else holds.
class Local
{
public:
    Local() = default;
    explicit Local(PyObject* object)
        : mObject(object)
    {
    }
    Local(Local&& other) noexcept
        : mObject(std::exchange(other.mObject, nullptr))
    {
    }
    Local& operator=(Local&& other) noexcept
    {
        std::swap(mObject, other.mObject);
        return *this;
    }
    ~Local()
    {
        Py_XDECREF(mObject);
    }
    PyObject* get() const noexcept
    {
        return mObject;
    }
    PyObject* release() noexcept
    {
        return std::exchange(mObject, nullptr);
    }

private:
    PyObject* mObject{nullptr};
};

inline Local takeException()
{
#if PY_VERSION_HEX >= 0x030C0000
    return Local(PyErr_GetRaisedException());
#else
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return Local(value);
#endif
}

inline std::string asText(PyObject* object)
{
    Local bytes(PyUnicode_AsEncodedString(object, "utf-8", "backslashreplace"));
    if (bytes.get() == nullptr)
    {
        PyErr_Clear();
        return "(a text that cannot be shown)";
    }
    return {PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))};
}

// The error that Python has raised, as an exception of this program.
inline Error makeError()
{
    Local raised = takeException();
    if (raised.get() == nullptr)
    {
        return {"InternalError", "a call failed and said nothing"};
    }
    std::string kind = Py_TYPE(raised.get())->tp_name;
    Local text(PyObject_Str(raised.get()));
    if (text.get() == nullptr)
    {
        PyErr_Clear();
    }
    std::string what = text.get() == nullptr ? kind : asText(text.get());
    return {kind.substr(kind.rfind('.') + 1), what.empty() ? kind : what};
}

// What a call returned, or its error.
inline Local check(PyObject* object)
{
    if (object == nullptr)
    {
        throw makeError();
    }
    return Local(object);
}

inline void checkStatus(int status)
{
    if (status < 0)
    {
        throw makeError();
    }
}

} // namespace detail
} // namespace dovetail
