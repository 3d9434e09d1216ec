// Errors of these headers with numbers in their text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>

namespace dovetail
{
namespace detail
{

// Not std::to_string, whose tables would keep the library from being unloaded.
[[noreturn]] inline void refuse(char const* format, int32_t first, int32_t second)
{
    char text[128];
    std::snprintf(text, sizeof(text), format, first, second);
    throw std::invalid_argument(text);
}

} // namespace detail
} // namespace dovetail
