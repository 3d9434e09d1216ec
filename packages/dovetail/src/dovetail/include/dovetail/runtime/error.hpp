// The one exception of programs that run plans.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace dovetail
{

// Whatever goes wrong: the text says what, where, what was expected and how to fix it.
class Error : public std::runtime_error
{
public:
    Error(std::string kind, std::string const& text)
        : std::runtime_error(text)
        , mKind(std::move(kind))
    {
    }

    // The class of the error in Python, such as "PlanTrustError" or "InputError"; "StartError" where none was started.
    std::string const& kind() const noexcept
    {
        return mKind;
    }

private:
    std::string mKind;
};

} // namespace dovetail
