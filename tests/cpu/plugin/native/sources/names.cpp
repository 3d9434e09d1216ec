// What host code of existing plugins names beside the interfaces; it is compiled and not run.
#include <NvInferPlugin.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace nvinfer1
{
class ICudaEngine;
class ITensor;
} // namespace nvinfer1

using namespace nvinfer1;

namespace
{

cudaError_t askDevice(cudaStream_t stream)
{
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    int value{properties.maxGridSize[0] + static_cast<int>(properties.sharedMemPerBlockOptin)};
    cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0);
    cudaRuntimeGetVersion(&value);
    cudaStreamCaptureStatus status{cudaStreamCaptureStatusActive};
    cudaStreamIsCapturing(stream, &status);
    return status == cudaStreamCaptureStatusNone ? cudaStreamQuery(cudaStreamPerThread) : cudaErrorNotReady;
}

cudaError_t useMemory(cudaStream_t stream)
{
    float* pinned{nullptr};
    cudaHostAlloc(&pinned, 64, cudaHostAllocDefault);
    float const rows[4]{1, 2, 3, 4};
    cudaMemcpy2DAsync(pinned, 16, rows, 8, 8, 2, cudaMemcpyHostToDevice, stream);
    cudaPointerAttributes attributes;
    cudaPointerGetAttributes(&attributes, pinned);
    cudaFreeHost(pinned);
    cudaEvent_t event;
    cudaEventCreate(&event);
    float milliseconds;
    cudaEventElapsedTime(&milliseconds, event, event);
    return cudaDeviceReset();
}

float useNumbers()
{
    __half number{__float2half_rn(1.5F)};
    number += __half(0.25F);
    __half2 const pair = __floats2half2_rn(1, 2);
    float4 const four = make_float4(1, 2, 3, 4);
    return number + pair.y + four.w + __bfloat162float(__float2bfloat16(3.0F)) + static_cast<__half_raw>(number).x;
}

int32_t askRegistry(IErrorRecorder* recorder)
{
    auto* registry = getBuilderPluginRegistry(EngineCapability::kSTANDARD);
    registry->setParentSearchEnabled(false);
    registry->setErrorRecorder(recorder);
    int32_t count{0};
    registry->getAllCreatorsRecursive(&count);
    return count + NV_TENSORRT_SONAME_MAJOR + static_cast<int32_t>(AllocatorFlag::kRESIZABLE);
}

} // namespace

extern "C" TENSORRTAPI float useAll(ICudaEngine*, ITensor*)
{
#if NV_TENSORRT_MAJOR < 10
    DimsCHW const dims{2, 3, 4};
    bool const isOld = PluginFormat::kNCHW == TensorFormat::kLINEAR && dims.w() == 4;
#else
    bool const isOld = false;
#endif
    return useNumbers() + static_cast<float>(askRegistry(nullptr) + askDevice(nullptr) + useMemory(nullptr) + isOld);
}
