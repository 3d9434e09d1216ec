// Plans in a C++ program: load one, give it memory, run it, read its results. No Python is written for it.
//
//     dovetail::Runtime runtime;                                  // once, in main
//     dovetail::Engine engine = runtime.load("model.plan");       // may be shared by threads
//     dovetail::Context context = engine.createContext();         // one for each thread
//     context.setInput("x", pixels, {1, 3, 224, 224});            // read in place, pixels must outlive run()
//     context.run();
//     dovetail::Tensor scores = context.output("scores");         // owns its memory
//     for (float score : scores.view<float>()) { ... }
//
// Everything that fails throws dovetail::Error. The interpreter that runs inside is started by the first Runtime and
// ended by the last object of this header; see docs/cpp-runtime.md.
#pragma once

#include "runtime/context.hpp"

namespace dovetail
{

namespace detail
{

extern "C" inline void dovetailForwardLog(void* user, int32_t level, char const* text)
{
    try
    {
        (*static_cast<LogFunction*>(user))(static_cast<LogLevel>(level), text);
    }
    catch (...) // nothing may be thrown through the interpreter
    {
    }
}

} // namespace detail

// A loaded plan. Copies are handles of the same one, and threads may share it.
class Engine
{
public:
    // There are no moves: an engine that was moved from would have no plan.
    Engine(Engine const&) = default;
    Engine& operator=(Engine const&) = default;

    std::string const& name() const noexcept
    {
        return mState->name;
    }
    // Inputs, then outputs.
    std::vector<TensorInfo> const& tensors() const noexcept
    {
        return mState->tensors;
    }
    TensorInfo const& input(std::string const& name) const
    {
        return mState->tensors[mState->find(name, true)];
    }
    TensorInfo const& output(std::string const& name) const
    {
        return mState->tensors[mState->find(name, false)];
    }
    int32_t numProfiles() const noexcept
    {
        return mState->numProfiles;
    }
    // What a profile allows for an input; throws where it has one shape only, or no bounds.
    ProfileShapes profileShapes(std::string const& name, int32_t profile) const
    {
        detail::Lock lock;
        detail::Local text = detail::makeText(name);
        detail::Local shapes
            = detail::check(PyObject_CallMethod(mState->object.get(), "profile_shapes", "Oi", text.get(), profile));
        if (PyTuple_Size(shapes.get()) != 3)
        {
            throw Error("UsageError", "input '" + name + "' has no bounds in profile " + std::to_string(profile));
        }
        return {detail::readShape(PyTuple_GetItem(shapes.get(), 0)),
            detail::readShape(PyTuple_GetItem(shapes.get(), 1)), detail::readShape(PyTuple_GetItem(shapes.get(), 2))};
    }
    Context createContext() const
    {
        detail::Lock lock;
        return {mState, detail::check(PyObject_CallMethod(mState->object.get(), "make_context", nullptr))};
    }

private:
    friend class Runtime;
    explicit Engine(std::shared_ptr<detail::EngineState> state)
        : mState(std::move(state))
    {
    }
    std::shared_ptr<detail::EngineState> mState;
};

// The interpreter inside the program. Make one in main and keep it: when it and everything made with it are gone, the
// interpreter ends, and it cannot be started again in the same process. Several share one interpreter.
class Runtime
{
public:
    explicit Runtime(RuntimeOptions const& options = {})
        : mInterpreter(detail::Interpreter::start(options.python))
    {
    }

    // A plan from its file, which is mapped and must not change while the engine lives.
    Engine load(std::string const& path, LoadOptions const& options = {}) const
    {
        detail::Lock lock;
        return open(detail::makeText(path), options);
    }
    // A plan from memory, which is copied. The size must be that of the plan: only the header is read before that is
    // checked, so that a size that is too large does not read memory behind the plan.
    Engine load(void const* plan, size_t sizeBytes, LoadOptions const& options = {}) const
    {
        if (plan == nullptr)
        {
            throw Error("UsageError", "the address of the plan is null; expected the bytes of a plan, got "
                                          + std::to_string(sizeBytes) + " bytes at null");
        }
        if (sizeBytes > static_cast<size_t>(PY_SSIZE_T_MAX))
        {
            throw Error("UsageError", "the plan has no possible size; expected at most "
                                          + std::to_string(PY_SSIZE_T_MAX) + " bytes, got "
                                          + std::to_string(sizeBytes));
        }
        detail::Lock lock;
        return open(detail::check(Py_BuildValue("(KK)",
                        static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(plan)),
                        static_cast<unsigned long long>(sizeBytes))),
            options);
    }

private:
    Engine open(detail::Local plan, LoadOptions const& options) const
    {
        auto log = options.log ? std::make_unique<detail::LogFunction>(options.log) : nullptr;
        detail::Local libraries = makeLibraries(options);
        detail::Local providers = makeProviderOptions(options);
        detail::Local messages = makeLog(log.get());
        detail::Local function = detail::check(PyObject_GetAttrString(mInterpreter->module(), "open_engine"));
        detail::Local made = detail::check(
            PyObject_CallFunctionObjArgs(function.get(), plan.get(), options.hostCode ? Py_True : Py_False,
                options.deviceCode ? Py_True : Py_False, libraries.get(), providers.get(), messages.get(), nullptr));
        return Engine(std::make_shared<detail::EngineState>(std::move(log), mInterpreter, std::move(made)));
    }

    static detail::Local makeLibraries(LoadOptions const& options)
    {
        detail::Local list = detail::check(PyList_New(0));
        for (std::string const& path : options.pluginLibraries)
        {
            detail::checkStatus(PyList_Append(list.get(), detail::makeText(path).get()));
        }
        return list;
    }

    static detail::Local makeProviderOptions(LoadOptions const& options)
    {
        detail::Local all = detail::check(PyDict_New());
        for (auto const& [provider, chosen] : options.providerOptions)
        {
            detail::Local some = detail::check(PyDict_New());
            for (auto const& [option, value] : chosen)
            {
                detail::checkStatus(
                    PyDict_SetItem(some.get(), detail::makeText(option).get(), detail::makeText(value).get()));
            }
            detail::checkStatus(PyDict_SetItem(all.get(), detail::makeText(provider).get(), some.get()));
        }
        return all;
    }

    static detail::Local makeLog(detail::LogFunction* log)
    {
        if (log == nullptr)
        {
            Py_INCREF(Py_None);
            return detail::Local(Py_None);
        }
        return detail::check(Py_BuildValue("(KK)",
            static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(&detail::dovetailForwardLog)),
            static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(log))));
    }

    std::shared_ptr<detail::Interpreter> mInterpreter;
};

} // namespace dovetail
