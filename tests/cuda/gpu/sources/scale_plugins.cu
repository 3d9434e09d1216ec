// A layer with a CUDA kernel, under the interface of version 10 and under the older one.
#include "example_plugin.h"

#include <cuda_runtime_api.h>

#include <string>

using namespace nvinfer1;

namespace
{

__global__ void scaleElements(float const* x, float* y, float factor, int64_t count)
{
    int64_t const i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
    if (i < count)
    {
        y[i] = factor * x[i];
    }
}

int32_t launchScale(PluginTensorDesc const& desc, void const* x, void* y, float factor, cudaStream_t stream)
{
    int64_t count = 1;
    for (int32_t i = 0; i < desc.dims.nbDims; ++i)
    {
        count *= desc.dims.d[i];
    }
    auto const blocks = static_cast<unsigned>((count + 255) / 256);
    scaleElements<<<blocks, 256, 0, stream>>>(static_cast<float const*>(x), static_cast<float*>(y), factor, count);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

class ScaleV3 : public ExamplePlugin<ScaleV3>
{
public:
    static constexpr char const* kNAME = "CudaScale";

    static ScaleV3* create(PluginFieldCollection const& fc)
    {
        auto* plugin = new ScaleV3{};
        readField(fc, "factor", PluginFieldType::kFLOAT32, plugin->mFactor);
        return plugin;
    }
    static std::vector<PluginField> fieldNames() { return {{"factor", nullptr, PluginFieldType::kFLOAT32, 1}}; }
    std::vector<PluginField> fields() const { return {{"factor", &mFactor, PluginFieldType::kFLOAT32, 1}}; }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) noexcept override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t stream) noexcept override
    {
        return launchScale(inputDesc[0], inputs[0], outputs[0], mFactor, stream);
    }

private:
    float mFactor{2.0F};
};

class ScaleV2 : public IPluginV2DynamicExt
{
public:
    explicit ScaleV2(float factor)
        : mFactor{factor}
    {
    }
    char const* getPluginType() const noexcept override { return "CudaScaleV2"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t initialize() noexcept override { return 0; }
    void terminate() noexcept override {}
    size_t getSerializationSize() const noexcept override { return sizeof(mFactor); }
    void serialize(void* buffer) const noexcept override { std::memcpy(buffer, &mFactor, sizeof(mFactor)); }
    void destroy() noexcept override { delete this; }
    IPluginV2DynamicExt* clone() const noexcept override { return new ScaleV2{*this}; }
    void setPluginNamespace(char const* name) noexcept override { mNamespace = name; }
    char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }
    DataType getOutputDataType(int32_t, DataType const* types, int32_t) const noexcept override { return types[0]; }
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) noexcept override
    {
        return inputs[0];
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].type == DataType::kFLOAT && inOut[pos].format == TensorFormat::kLINEAR;
    }
    void configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
    }
    size_t getWorkspaceSize(
        PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const noexcept override
    {
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t stream) noexcept override
    {
        return launchScale(inputDesc[0], inputs[0], outputs[0], mFactor, stream);
    }

private:
    float mFactor;
    std::string mNamespace;
};

class ScaleV2Creator : public IPluginCreator
{
public:
    char const* getPluginName() const noexcept override { return "CudaScaleV2"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const* fc) noexcept override
    {
        float factor = 2.0F;
        readField(*fc, "factor", PluginFieldType::kFLOAT32, factor);
        return new ScaleV2{factor};
    }
    IPluginV2* deserializePlugin(char const*, void const* data, size_t) noexcept override
    {
        return new ScaleV2{*static_cast<float const*>(data)};
    }
    void setPluginNamespace(char const* name) noexcept override { mNamespace = name; }
    char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

private:
    PluginField mField{"factor", nullptr, PluginFieldType::kFLOAT32, 1};
    PluginFieldCollection mFields{1, &mField};
    std::string mNamespace;
};

} // namespace

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static ExampleCreator<ScaleV3> first;
    static ScaleV2Creator second;
    static IPluginCreatorInterface* const creators[]{&first, &second};
    nbCreators = 2;
    return creators;
}
