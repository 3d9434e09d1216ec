// The rest of the stand-in for the CUDA runtime: what host code of plugins asks more seldom.
#pragma once

#include "cuda_runtime_api.h"

#define cudaStreamLegacy (static_cast<cudaStream_t>(nullptr))
#define cudaStreamPerThread (static_cast<cudaStream_t>(nullptr))

constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
constexpr unsigned cudaHostRegisterDefault = 0;
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;
constexpr unsigned cudaEventBlockingSync = 1;

enum cudaStreamCaptureStatus
{
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2,
};

enum cudaDeviceAttr
{
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

enum cudaMemoryType
{
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3,
};

struct cudaPointerAttributes
{
    cudaMemoryType type;
    int device;
    void* devicePointer;
    void* hostPointer;
};

typedef void (*cudaHostFn_t)(void* data);

inline cudaError_t cudaDeviceReset()
{
    return cudaSuccess;
}

inline cudaError_t cudaStreamQuery(cudaStream_t)
{
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int)
{
    return cudaStreamCreate(stream);
}

inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status)
{
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

inline cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data)
{
    function(data);
    return cudaSuccess;
}

template <typename T>
inline cudaError_t cudaHostAlloc(T** address, size_t size, unsigned)
{
    return cudaMallocHost(address, size);
}

template <typename T>
inline cudaError_t cudaMallocManaged(T** address, size_t size, unsigned = cudaMemAttachGlobal)
{
    return cudaMallocHost(address, size);
}

inline cudaError_t cudaHostRegister(void*, size_t, unsigned)
{
    return cudaSuccess;
}

inline cudaError_t cudaHostUnregister(void*)
{
    return cudaSuccess;
}

// How much there is, is not known.
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total)
{
    *free = *total = 0;
    return cudaErrorNotSupported;
}

inline cudaError_t cudaMemcpy2D(
    void* to, size_t toPitch, void const* from, size_t fromPitch, size_t width, size_t height, cudaMemcpyKind kind)
{
    for (size_t row = 0; row < height; ++row)
    {
        cudaMemcpy(static_cast<char*>(to) + row * toPitch, static_cast<char const*>(from) + row * fromPitch, width, kind);
    }
    return cudaSuccess;
}

inline cudaError_t cudaMemcpy2DAsync(void* to, size_t toPitch, void const* from, size_t fromPitch, size_t width,
    size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr)
{
    return cudaMemcpy2D(to, toPitch, from, fromPitch, width, height, kind);
}

inline cudaError_t cudaMemcpyPeerAsync(void* to, int, void const* from, int, size_t size, cudaStream_t = nullptr)
{
    return cudaMemcpy(to, from, size, cudaMemcpyDefault);
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device)
{
    bool const isCount = attribute == cudaDevAttrMaxThreadsPerBlock || attribute == cudaDevAttrWarpSize
        || attribute == cudaDevAttrMultiProcessorCount || attribute == cudaDevAttrMaxThreadsPerMultiProcessor;
    *value = isCount ? 1 : 0;
    return cudaSetDevice(device);
}

inline cudaError_t cudaRuntimeGetVersion(int* version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// There is no driver.
inline cudaError_t cudaDriverGetVersion(int* version)
{
    *version = 0;
    return cudaSuccess;
}

inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* address)
{
    auto* const same = const_cast<void*>(address);
    *attributes = {cudaMemoryTypeHost, 0, same, same};
    return cudaSuccess;
}
