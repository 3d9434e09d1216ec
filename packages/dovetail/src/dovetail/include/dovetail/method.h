// The running method of a plugin, for messages of exceptions, and the deletion of plugins with such methods.
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
auto named(char const* method, F&& call) -> std::enable_if_t<std::is_void<decltype(call())>::value>
{
    char const* const outer = std::exchange(currentMethod(), method);
    call();
    currentMethod() = outer;
}

template <typename F>
auto named(char const* method, F&& call) -> std::enable_if_t<!std::is_void<decltype(call())>::value, decltype(call())>
{
    char const* const outer = std::exchange(currentMethod(), method);
    auto result = call();
    currentMethod() = outer;
    return result;
}

// Receives the exceptions of methods that a destructor calls, which must not leave the destructor.
class DOVETAIL_PRIVATE ReleaseScope
{
public:
    ReleaseScope() noexcept
        : mOuter{std::exchange(current(), this)}
    {
    }
    ReleaseScope(ReleaseScope const&) = delete;
    ReleaseScope& operator=(ReleaseScope const&) = delete;
    ~ReleaseScope() { current() = mOuter; }

    // The innermost scope of this thread; null where there is none. A plain pointer, as in `currentMethod`.
    static ReleaseScope*& current() noexcept
    {
        static thread_local ReleaseScope* scope;
        return scope;
    }

    // Keeps the exception that is being handled, unless there is an earlier one.
    void keep(char const* method) noexcept
    {
        if (!mFirst)
        {
            mFirst = std::current_exception();
            mMethod = method;
        }
    }

    void rethrow()
    {
        if (mFirst)
        {
            currentMethod() = mMethod;
            std::rethrow_exception(mFirst);
        }
    }

private:
    ReleaseScope* mOuter;
    std::exception_ptr mFirst;
    char const* mMethod{};
};

// Calls a method of a plugin in a destructor. An exception is kept in the current scope, and dropped where there is
// none, as while another exception is under way.
template <typename F>
void callReleasing(char const* method, F&& call) noexcept
{
    char const* const outer = currentMethod();
    try
    {
        named(method, call);
    }
    catch (...)
    {
        currentMethod() = outer;
        if (auto* const scope = ReleaseScope::current())
        {
            scope->keep(method);
        }
    }
}

// Deletes an object, and throws the first exception of the methods that its destructor called by `callReleasing`.
template <typename T>
void deleteReleased(T* object)
{
    ReleaseScope scope;
    delete object;
    scope.rethrow();
}

} // namespace detail
} // namespace dovetail
