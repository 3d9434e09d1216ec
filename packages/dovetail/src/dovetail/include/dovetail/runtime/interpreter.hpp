// The interpreter inside a program: found, started once, and ended with the last object that needs it.
#pragma once

#include "python.hpp"

#include <cstdlib>

namespace dovetail
{
namespace detail
{

// The version of the calls in dovetail.runtime.embedded that this header was written for.
constexpr long kCallsVersion = 1;

// The interpreter of this process. Every object of this header holds it, and the last one ends it.
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
        if (!Py_IsInitialized())
        {
            return;
        }
        if (!mIsOwn)
        {
            BareLock lock;
            Py_CLEAR(mModule);
            return;
        }
        PyGILState_Ensure();
        Py_CLEAR(mModule);
        Py_FinalizeEx();
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
        : mIsOwn(!Py_IsInitialized())
    {
        if (mIsOwn)
        {
            initialise(findPython(python));
            try
            {
                load();
            }
            catch (...)
            {
                Py_CLEAR(mModule);
                Py_FinalizeEx();
                throw;
            }
            PyEval_SaveThread();
            return;
        }
        BareLock lock;
        load();
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

    bool mIsOwn;
    PyObject* mModule{nullptr};
};

} // namespace detail
} // namespace dovetail
