// The method of a plugin that runs in this thread, for the message of an exception.
#pragma once

#include "types.h"

#include <exception>
#include <type_traits>
#include <utility>

namespace dovetail
{
namespace detail
{

// Null where the function of abi.h names the method by itself. A plain pointer: a thread that ends after the library is
// unloaded has nothing to destroy.
DOVETAIL_PRIVATE inline char const*& currentMethod() noexcept
{
    static thread_local char const* method;
    return method;
}

// Calls one method of a plugin under its name. After an exception the name stays until `guarded` reads it.
template <typename F>
auto named(char const* method, F&& call) -> decltype(call())
{
    char const* const outer = std::exchange(currentMethod(), method);
    if constexpr (std::is_void_v<decltype(call())>)
    {
        call();
        currentMethod() = outer;
    }
    else
    {
        auto result = call();
        currentMethod() = outer;
        return result;
    }
}

// Calls several methods that must all run, such as those that release an object, and rethrows the first exception.
class Attempts
{
public:
    template <typename F>
    void run(char const* method, F&& call) noexcept
    {
        char const* const outer = currentMethod();
        try
        {
            named(method, call);
        }
        catch (...)
        {
            currentMethod() = outer;
            if (!mFirst)
            {
                mFirst = std::current_exception();
                mMethod = method;
            }
        }
    }
    // Drops the exception while another one is under way, which ends the process otherwise.
    void rethrow()
    {
        if (mFirst && std::uncaught_exceptions() == 0)
        {
            currentMethod() = mMethod;
            std::rethrow_exception(mFirst);
        }
    }

private:
    std::exception_ptr mFirst;
    char const* mMethod{};
};

// Deletes an object while an exception is under way; one of its destructor is dropped.
struct Discard
{
    template <typename T>
    void operator()(T* object) const noexcept
    {
        char const* const outer = currentMethod();
        try
        {
            delete object;
        }
        catch (...)
        {
            currentMethod() = outer;
        }
    }
};

} // namespace detail
} // namespace dovetail
