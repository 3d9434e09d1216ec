// The functions that Dovetail offers to this library, and the gate that every call of them passes.
#pragma once

#include "abi.h"
#include "registry.h"

#include <atomic>
#include <cxxabi.h>
#include <new>
#include <unistd.h>
#include <utility>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// An object that is never destroyed: static destructors, and threads that outlive them, may use it.
template <typename T, typename... Args>
DOVETAIL_PRIVATE inline T& immortal(Args... args)
{
    alignas(T) static unsigned char storage[sizeof(T)];
    static T* const object = ::new (storage) T{args...};
    return *object;
}

// The host of this library. A copy of its table, because Dovetail's own is gone when the interpreter has ended.
struct HostLink
{
    std::atomic<bool> isAttached{false}; // set after `host`, which is written once
    std::atomic<int64_t> context{0};
    std::atomic<int32_t> numCalls{0}; // calls of the host that have not returned
    dovetail_host host{};
};

DOVETAIL_PRIVATE inline HostLink& hostLink() noexcept
{
    static HostLink link;
    return link;
}

// Blocks this thread until the process ends.
[[noreturn]] inline void park() noexcept
{
    for (;;)
    {
        pause();
    }
}

// Calls a function that may enter Python. While the interpreter finalizes, Python ends every other thread that enters it
// by unwinding its stack, which would terminate the process in the first function that is noexcept or catches all
// exceptions. Such a thread is blocked here instead, after `onEnd`; newer versions of Python block it themselves.
template <typename F, typename G>
void enterPython(F&& call, G&& onEnd)
{
    try
    {
        call();
    }
#ifdef __GLIBCXX__
    catch (abi::__forced_unwind&)
    {
        onEnd();
        park();
    }
#endif
    catch (...)
    {
        throw;
    }
}

template <typename F>
void enterPython(F&& call)
{
    enterPython(call, [] {});
}

// True while this library may enter Python: from the time Dovetail attaches its host until the interpreter finalizes.
DOVETAIL_PRIVATE inline bool isHostRunning() noexcept
{
    HostLink const& link = hostLink();
    return link.isAttached.load(std::memory_order_acquire) && link.host.is_running() != 0;
}

// True after the interpreter began to finalize.
DOVETAIL_PRIVATE inline bool isHostGone() noexcept
{
    HostLink const& link = hostLink();
    return link.isAttached.load(std::memory_order_acquire) && link.host.is_running() == 0;
}

// Calls the host, or returns `fallback` where there is none: before it is attached, and from the moment that the
// interpreter finalizes.
template <typename R, typename F>
R callHost(R fallback, F&& call) noexcept
{
    HostLink& link = hostLink();
    R result = fallback;
    link.numCalls.fetch_add(1); // before the check, so that the end of the interpreter can wait for this call
    if (isHostRunning())
    {
        enterPython([&] { result = call(link.host, link.context.load()); }, [&] { link.numCalls.fetch_sub(1); });
    }
    link.numCalls.fetch_sub(1);
    return result;
}

class DOVETAIL_PRIVATE HostLogger final : public ILogger
{
public:
    void log(Severity severity, AsciiChar const* msg) noexcept override
    {
        callHost(0, [&](dovetail_host const& host, int64_t context) {
            host.log(context, static_cast<int32_t>(severity), msg ? msg : "");
            return 0;
        });
    }
};

DOVETAIL_PRIVATE inline HostLogger& hostLogger() noexcept
{
    return immortal<HostLogger>();
}

class DOVETAIL_PRIVATE HostLoggerFinder final : public ILoggerFinder
{
public:
    ILogger* findLogger() override { return &hostLogger(); }
};

DOVETAIL_PRIVATE inline HostLoggerFinder& hostLoggerFinder() noexcept
{
    return immortal<HostLoggerFinder>();
}

} // namespace detail
} // namespace dovetail
