// The interpreter inside a program: found, started once, and ended with the last object that needs it.
#pragma once

#include "python.hpp"

#include <cstdlib>
#include <future>
#include <thread>

namespace dovetail
{
namespace detail
{

// The version of the calls in dovetail.runtime.embedded that this header was written for.
constexpr long kCallsVersion = 2;

// The interpreter of this process. Every object of this header holds it, and the last one ends it. It starts and ends
// in a thread of its own, because it must end in the thread that started it, and nobody knows which one lets go last.
class Interpreter
{
public:
    static std::shared_ptr<Interpreter> start(std::string const& python)
    {
        std::unique_lock<std::mutex> guard = lockInterpreter();
        auto found = std::static_pointer_cast<Interpreter>(runningInterpreter().lock());
        if (found == nullptr)
        {
            found.reset(new Interpreter(python));
            runningInterpreter() = found;
        }
        return found;
    }

    ~Interpreter()
    {
        if (mThread.joinable())
        {
            mEnd.set_value();
            mThread.join();
        }
        else if (Py_IsInitialized())
        {
            BareLock lock;
            Py_CLEAR(mModule);
        }
    }

    Interpreter(Interpreter const&) = delete;
    Interpreter& operator=(Interpreter const&) = delete;

    // The Python side of this header; call it under a lock.
    PyObject* module() const noexcept
    {
        return mModule;
    }

private:
    explicit Interpreter(std::string const& python)
    {
        if (Py_IsInitialized())
        {
            BareLock lock;
            load();
            return;
        }
        mThread = std::thread([this, path = findPython(python)] { live(path); });
        try
        {
            mStarted.get_future().get();
        }
        catch (...)
        {
            mThread.join();
            throw;
        }
    }

    // The whole life of an interpreter of our own.
    void live(std::string const& python)
    {
        try
        {
            initialise(python);
            load();
        }
        catch (...)
        {
            end();
            mStarted.set_exception(std::current_exception());
            return;
        }
        PyThreadState* const saved = PyEval_SaveThread();
        std::future<void> const wanted = mEnd.get_future();
        mStarted.set_value();
        wanted.wait();
        PyEval_RestoreThread(saved);
        end();
    }

    void end()
    {
        if (Py_IsInitialized())
        {
            Py_CLEAR(mModule);
            Py_FinalizeEx();
        }
    }

    // Nobody waits for the mutex while holding the interpreter's lock, which whoever has the mutex may want.
    static std::unique_lock<std::mutex> lockInterpreter()
    {
        PyThreadState* const held = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
        std::unique_lock<std::mutex> guard(interpreterMutex());
        if (held != nullptr)
        {
            PyEval_RestoreThread(held);
        }
        return guard;
    }

    static std::string findPython(std::string const& python)
    {
        if (!python.empty())
        {
            return python;
        }
        char const* chosen = std::getenv("DOVETAIL_PYTHON");
        if (chosen != nullptr && *chosen != '\0')
        {
            return chosen;
        }
#ifdef DOVETAIL_PYTHON
        return DOVETAIL_PYTHON;
#else
        return {};
#endif
    }

    // Isolated: neither variables such as PYTHONPATH nor the current folder say what is imported.
    static void initialise(std::string const& python)
    {
        static bool hasStarted = false;
        if (std::exchange(hasStarted, true))
        {
            throw Error("StartError", "the interpreter was started and ended in this process, and can be started once\n"
                                      "  fix: keep one dovetail::Runtime until the end of main");
        }
        PyPreConfig before;
        PyPreConfig_InitIsolatedConfig(&before);
        before.utf8_mode = 1;
        require(Py_PreInitialize(&before), python);
        PyConfig config;
        PyConfig_InitIsolatedConfig(&config);
        PyStatus status = setPaths(config, python);
        if (!PyStatus_Exception(status))
        {
            status = Py_InitializeFromConfig(&config);
        }
        PyConfig_Clear(&config);
        require(status, python);
    }

    static PyStatus setPaths(PyConfig& config, std::string const& python)
    {
        if (python.empty())
        {
            return PyStatus_Ok();
        }
        PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, python.c_str());
        return PyStatus_Exception(status) ? status
                                          : PyConfig_SetBytesString(&config, &config.executable, python.c_str());
    }

    static void require(PyStatus const& status, std::string const& python)
    {
        if (PyStatus_Exception(status))
        {
            std::string reason = status.err_msg == nullptr ? "no reason is given" : status.err_msg;
            throw Error("StartError", explain("the interpreter does not start: " + reason, python));
        }
    }

    static std::string explain(std::string const& what, std::string const& python)
    {
        return what + "; looked at '" + (python.empty() ? "(none)" : python) + "', for Python " PY_VERSION
               + "\n  fix: name the python of the environment that has Dovetail, of that version: "
                 "RuntimeOptions::python, "
                 "the variable DOVETAIL_PYTHON, or the flags of 'dovetail runtime-flags'";
    }

    void load()
    {
        Local module(PyImport_ImportModule("dovetail.runtime.embedded.engine"));
        if (module.get() == nullptr)
        {
            std::string reason = makeError().what();
            PyObject* executable = PySys_GetObject("executable");
            throw Error("StartError",
                explain("Dovetail cannot be imported: " + reason, executable == nullptr ? "" : asText(executable)));
        }
        Local version = check(PyObject_GetAttrString(module.get(), "VERSION"));
        if (PyLong_AsLong(version.get()) != kCallsVersion)
        {
            throw Error("StartError",
                "the program was compiled with the headers of another version of Dovetail; expected version "
                    + std::to_string(kCallsVersion) + " of the calls, got "
                    + asText(check(PyObject_Str(version.get())).get())
                    + "\n  fix: compile it again with the headers of the installed version");
        }
        mModule = module.release();
    }

    PyObject* mModule{nullptr};
    std::promise<void> mStarted, mEnd;
    std::thread mThread; // not joinable where the interpreter is somebody else's
};

} // namespace detail
} // namespace dovetail
