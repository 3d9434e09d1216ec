// A stand-in for the CUDA runtime on machines without it: memory is the host's, and a stream does its work at once.
// Put this folder on the include path only where there is no CUDA.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#define DOVETAIL_NO_CUDA 1
#define CUDART_VERSION 12000

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

enum cudaError
{
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind
{
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

inline cudaError_t cudaMalloc(void** address, size_t size)
{
    *address = std::malloc(size ? size : 1);
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}

inline cudaError_t cudaFree(void* address)
{
    std::free(address);
    return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void* to, void const* from, size_t size, cudaMemcpyKind)
{
    if (size)
    {
        std::memmove(to, from, size);
    }
    return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(
    void* to, void const* from, size_t size, cudaMemcpyKind kind, cudaStream_t = nullptr)
{
    return cudaMemcpy(to, from, size, kind);
}

inline cudaError_t cudaMemset(void* to, int value, size_t size)
{
    if (size)
    {
        std::memset(to, value, size);
    }
    return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t = nullptr)
{
    return cudaMemset(to, value, size);
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

inline cudaError_t cudaPeekAtLastError()
{
    return cudaSuccess;
}

inline char const* cudaGetErrorString(cudaError_t error)
{
    switch (error)
    {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorUnknown: return "unknown error";
    }
    return "unrecognized error code";
}

inline char const* cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : cudaGetErrorString(error);
}

// The host is the one device there is.
struct cudaDeviceProp
{
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, totalConstMem;
    size_t sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor;
    int multiProcessorCount, maxThreadsPerMultiProcessor;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int regsPerBlock, warpSize, clockRate, memoryBusWidth, l2CacheSize;
    int integrated, concurrentKernels, canMapHostMemory, unifiedAddressing;
};

inline cudaError_t cudaGetDevice(int* device)
{
    *device = 0;
    return cudaSuccess;
}

inline cudaError_t cudaGetDeviceCount(int* count)
{
    *count = 1;
    return cudaSuccess;
}

inline cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device)
{
    *properties = cudaDeviceProp{};
    std::strcpy(properties->name, "host");
    properties->multiProcessorCount = properties->maxThreadsPerBlock = properties->warpSize = 1;
    return cudaSetDevice(device);
}

inline cudaError_t cudaDeviceSynchronize()
{
    return cudaSuccess;
}

template <typename T>
inline cudaError_t cudaMalloc(T** address, size_t size)
{
    return cudaMalloc(reinterpret_cast<void**>(address), size);
}

template <typename T>
inline cudaError_t cudaMallocHost(T** address, size_t size)
{
    return cudaMalloc(reinterpret_cast<void**>(address), size);
}

template <typename T>
inline cudaError_t cudaMallocAsync(T** address, size_t size, cudaStream_t)
{
    return cudaMalloc(reinterpret_cast<void**>(address), size);
}

inline cudaError_t cudaFreeHost(void* address)
{
    return cudaFree(address);
}

inline cudaError_t cudaFreeAsync(void* address, cudaStream_t)
{
    return cudaFree(address);
}

constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;

// All streams and events are one: work is done when it is given.
inline cudaError_t cudaStreamCreate(cudaStream_t* stream)
{
    *stream = nullptr;
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned)
{
    return cudaStreamCreate(stream);
}

inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0)
{
    return cudaSuccess;
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event)
{
    *event = nullptr;
    return cudaSuccess;
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned)
{
    return cudaEventCreate(event);
}

inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr)
{
    return cudaSuccess;
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}

inline cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}

// Nothing is timed.
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t)
{
    *milliseconds = 0;
    return cudaSuccess;
}

#include "cuda_runtime_rest.h"
