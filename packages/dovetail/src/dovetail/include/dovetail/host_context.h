// The resource context of an attached plugin: each call goes to the execution context in Dovetail.
#pragma once

#include "context.h"
#include "library_registry.h"

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dovetail
{
namespace detail
{

class DOVETAIL_PRIVATE HostAllocator final : public IGpuAllocator
{
public:
    explicit HostAllocator(int64_t token) noexcept
        : mToken{token}
    {
    }
    void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags flags) noexcept override
    {
        return callHost(static_cast<void*>(nullptr), [&](dovetail_host const& host, int64_t) {
            return host.allocate(mToken, size, alignment, flags);
        });
    }
    bool deallocate(void* memory) noexcept override
    {
        return callHost(int32_t{0}, [&](dovetail_host const& host, int64_t) {
            return host.deallocate(mToken, memory);
        }) == 1;
    }

private:
    int64_t mToken;
};

class DOVETAIL_PRIVATE HostErrorRecorder final : public IErrorRecorder
{
public:
    explicit HostErrorRecorder(int64_t token) noexcept
        : mToken{token}
    {
    }

    int32_t getNbErrors() const noexcept override
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        return static_cast<int32_t>(mErrors.size());
    }
    ErrorCode getErrorCode(int32_t errorIdx) const noexcept override
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        return has(errorIdx) ? mErrors[static_cast<size_t>(errorIdx)].first : ErrorCode::kINVALID_ARGUMENT;
    }
    ErrorDesc getErrorDesc(int32_t errorIdx) const noexcept override
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        return has(errorIdx) ? mErrors[static_cast<size_t>(errorIdx)].second.c_str() : "there is no such error";
    }
    bool hasOverflowed() const noexcept override { return false; }
    void clear() noexcept override
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        mErrors.clear();
    }
    bool reportError(ErrorCode val, ErrorDesc desc) noexcept override
    {
        guarded([&] { // without memory the report still goes to the execution context
            std::lock_guard<std::mutex> const lock{mMutex};
            mErrors.emplace_back(val, desc ? desc : "");
        });
        return callHost(int32_t{0}, [&](dovetail_host const& host, int64_t) {
            return host.report_error(mToken, static_cast<int32_t>(val), desc ? desc : "");
        }) == 1;
    }
    RefCount incRefCount() noexcept override { return ++mCount; }
    RefCount decRefCount() noexcept override { return --mCount; }

private:
    bool has(int32_t index) const noexcept { return index >= 0 && static_cast<size_t>(index) < mErrors.size(); }

    int64_t mToken;
    std::atomic<RefCount> mCount{0};
    mutable std::mutex mMutex;
    std::vector<std::pair<ErrorCode, std::string>> mErrors;
};

class DOVETAIL_PRIVATE HostResourceContext final : public IPluginResourceContext
{
public:
    explicit HostResourceContext(int64_t token) noexcept
        : mAllocator{token}
        , mRecorder{token}
    {
    }
    IGpuAllocator* getGpuAllocator() const noexcept override { return &mAllocator; }
    IErrorRecorder* getErrorRecorder() const noexcept override { return &mRecorder; }

private:
    mutable HostAllocator mAllocator;
    mutable HostErrorRecorder mRecorder;
};

} // namespace detail
} // namespace dovetail
