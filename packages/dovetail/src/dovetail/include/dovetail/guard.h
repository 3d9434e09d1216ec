// What lets no exception out of the library.
#pragma once

#include "plugin.h"

#include <cstdio>
#include <exception>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// Plain memory, so that a thread that ends after the library is unloaded has nothing to destroy.
DOVETAIL_PRIVATE inline char* errorText() noexcept
{
    static thread_local char text[1024];
    return text;
}

DOVETAIL_PRIVATE inline int32_t fail(char const* text) noexcept
{
    std::snprintf(errorText(), 1024, "%s", text);
    return 1;
}

template <typename F>
int32_t guarded(F&& call) noexcept
{
    try
    {
        call();
        return 0;
    }
    catch (std::exception const& error)
    {
        return fail(error.what());
    }
    catch (...)
    {
        return fail("an exception that is no std::exception");
    }
}

template <typename T>
T* as(void* handle) noexcept
{
    return static_cast<T*>(handle);
}

inline void describe(IVersionedInterface const& object, dovetail_capability& described)
{
    InterfaceInfo const info = object.getInterfaceInfo();
    described.kind = info.kind;
    described.major = info.major;
    described.minor = info.minor;
}

DOVETAIL_PRIVATE inline char const* lastError()
{
    return errorText();
}

} // namespace detail
} // namespace dovetail
