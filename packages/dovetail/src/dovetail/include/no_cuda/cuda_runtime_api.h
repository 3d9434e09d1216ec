// A stand-in for the CUDA runtime on machines without it: memory is the host's, and a stream does its work at once.
// Put this folder on the include path only where there is no CUDA.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#define DOVETAIL_NO_CUDA 1

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

enum cudaError
{
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
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
    }
    return "unknown error";
}
