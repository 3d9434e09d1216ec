// Arrays that callbacks fill.
#pragma once

#include "refuse.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace dovetail
{
namespace detail
{

// Not members of the template: g++ makes those symbols for which a library is never unloaded.
constexpr size_t kANSWERS_ROOM = 1024;
constexpr unsigned char kUNTOUCHED = 0xA5;

// Room for so many answers, and more room behind it in which it shows when a callback writes too far.
template <typename T>
class Answers
{
public:
    Answers(int32_t count, T const& unset)
        : mCount{count}
        , mMemory(static_cast<size_t>(count) * sizeof(T) + kANSWERS_ROOM, kUNTOUCHED)
    {
        std::uninitialized_fill_n(data(), count, unset);
    }
    Answers(Answers const&) = delete;

    T* data() noexcept { return reinterpret_cast<T*>(mMemory.data()); }

    // What was filled in; throws where the callback wrote behind it.
    std::vector<T> take()
    {
        auto const end = mMemory.end();
        auto const isUntouched = [](unsigned char byte) { return byte == kUNTOUCHED; };
        if (!std::all_of(end - static_cast<std::ptrdiff_t>(kANSWERS_ROOM), end, isUntouched))
        {
            refuse("it wrote past the end of its array, which has %d elements, so that index %d is outside", mCount, mCount);
        }
        return {data(), data() + mCount};
    }

private:
    int32_t mCount;
    std::vector<unsigned char> mMemory;
};

} // namespace detail
} // namespace dovetail
