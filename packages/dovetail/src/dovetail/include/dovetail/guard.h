// Functions that let no exception out of the library.
#pragma once

#include "abi.h"
#include "method.h"
#include "plugin.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <string>
#include <typeinfo>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// The last exception of this thread. Plain memory, for the reason that `currentMethod` has.
struct LastFailure
{
    char const* method;
    char text[1024];
};

DOVETAIL_PRIVATE inline LastFailure& lastFailure() noexcept
{
    static thread_local LastFailure failure;
    return failure;
}

// The demangled type of the exception that is being handled, after other words.
DOVETAIL_PRIVATE inline void writeExceptionType(char* text, size_t size, char const* words) noexcept
{
    std::type_info const* const type = abi::__cxa_current_exception_type();
    int status = 0;
    char* const readable = type ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr;
    std::snprintf(text, size, "%s of type %s", words, readable ? readable : type ? type->name() : "unknown");
    std::free(readable);
}

// The text of the exception that is being handled; its type where it has no text.
DOVETAIL_PRIVATE inline void writeException(char* text, size_t size) noexcept
{
    auto const write = [&](char const* words) {
        words && *words ? static_cast<void>(std::snprintf(text, size, "%s", words))
                        : writeExceptionType(text, size, "an exception without a text,");
    };
    try
    {
        throw;
    }
    catch (std::exception const& error)
    {
        write(error.what());
    }
    catch (std::string const& words)
    {
        write(words.c_str());
    }
    catch (char const* words)
    {
        write(words);
    }
    catch (int number)
    {
        std::snprintf(text, size, "an exception that is no std::exception, the int %d", number);
    }
    catch (...)
    {
        writeExceptionType(text, size, "an exception that is no std::exception,");
    }
}

template <typename F>
int32_t guarded(F&& call) noexcept
{
    char const* const outer = std::exchange(currentMethod(), nullptr);
    int32_t status = 0;
    try
    {
        call();
    }
    catch (...)
    {
        LastFailure& failure = lastFailure();
        failure.method = currentMethod();
        writeException(failure.text, sizeof(failure.text));
        status = 1;
    }
    currentMethod() = outer;
    return status;
}

// True if two texts are equal; null counts as empty.
inline bool sameText(char const* first, char const* second) noexcept
{
    return std::strcmp(first ? first : "", second ? second : "") == 0;
}

template <typename T>
T* as(void* handle) noexcept
{
    return static_cast<T*>(handle);
}

inline void describe(IVersionedInterface const& object, dovetail_capability& described)
{
    InterfaceInfo const info = named("getInterfaceInfo", [&] { return object.getInterfaceInfo(); });
    described.kind = info.kind;
    described.major = info.major;
    described.minor = info.minor;
}

// The identity of a creator or of a core capability.
template <typename T>
dovetail_identity readIdentity(T const& object)
{
    return {named("getPluginName", [&] { return object.getPluginName(); }),
        named("getPluginVersion", [&] { return object.getPluginVersion(); }),
        named("getPluginNamespace", [&] { return object.getPluginNamespace(); })};
}

DOVETAIL_PRIVATE inline char const* lastError() noexcept
{
    return lastFailure().text;
}

DOVETAIL_PRIVATE inline char const* lastMethod() noexcept
{
    return lastFailure().method;
}

} // namespace detail
} // namespace dovetail
