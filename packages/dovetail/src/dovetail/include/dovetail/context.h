// What an execution context offers to the plugins that are attached to it.
#pragma once

#include "types.h"

namespace nvinfer1
{
inline namespace dovetail_v1
{

enum class ErrorCode : int32_t
{
    kSUCCESS = 0,
    kUNSPECIFIED_ERROR = 1,
    kINTERNAL_ERROR = 2,
    kINVALID_ARGUMENT = 3,
    kINVALID_CONFIG = 4,
    kFAILED_ALLOCATION = 5,
    kFAILED_INITIALIZATION = 6,
    kFAILED_EXECUTION = 7,
    kFAILED_COMPUTATION = 8,
    kINVALID_STATE = 9,
    kUNSUPPORTED_STATE = 10,
};

enum class AllocatorFlag : int32_t
{
    kRESIZABLE = 0,
};
using AllocatorFlags = uint32_t;

class IGpuAllocator
{
public:
    // Null where there is no memory.
    virtual void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags flags) noexcept = 0;
    virtual bool deallocate(void* memory) noexcept = 0;
    virtual void* reallocate(void* /*address*/, uint64_t /*alignment*/, uint64_t /*newSize*/) noexcept
    {
        return nullptr;
    }
    virtual void* allocateAsync(uint64_t size, uint64_t alignment, AllocatorFlags flags, cudaStream_t) noexcept
    {
        return allocate(size, alignment, flags);
    }
    virtual bool deallocateAsync(void* memory, cudaStream_t) noexcept { return deallocate(memory); }
    virtual ~IGpuAllocator() = default;
};

class IErrorRecorder
{
public:
    using ErrorDesc = char const*;
    using RefCount = int32_t;
    static constexpr size_t kMAX_DESC_LENGTH = 127;

    // What was reported through this object.
    virtual int32_t getNbErrors() const noexcept = 0;
    virtual ErrorCode getErrorCode(int32_t errorIdx) const noexcept = 0;
    virtual ErrorDesc getErrorDesc(int32_t errorIdx) const noexcept = 0;
    virtual bool hasOverflowed() const noexcept = 0;
    virtual void clear() noexcept = 0;
    // True where the error is so severe that work should stop.
    virtual bool reportError(ErrorCode val, ErrorDesc desc) noexcept = 0;
    virtual RefCount incRefCount() noexcept = 0;
    virtual RefCount decRefCount() noexcept = 0;
    virtual ~IErrorRecorder() noexcept = default;
};

class IPluginResourceContext
{
public:
    virtual IGpuAllocator* getGpuAllocator() const noexcept = 0;
    virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
    virtual ~IPluginResourceContext() noexcept = default;

protected:
    IPluginResourceContext() = default;
    IPluginResourceContext(IPluginResourceContext const&) = default;
    IPluginResourceContext& operator=(IPluginResourceContext const&) & = default;
};

} // namespace dovetail_v1
} // namespace nvinfer1
