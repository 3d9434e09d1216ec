// A V3 plugin that keeps every rule: the definitions.
#include "pad_plugin.h"

#include <stdexcept>

using namespace nvinfer1;

namespace acme
{
template <typename T>
__global__ void padRows(T const* __restrict__ x, T* __restrict__ y, int32_t n)
{
    int32_t const i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
    {
        y[i] = x[i];
    }
}

__global__ void padTiles(float const* x, float* y, int32_t n);

PadPlugin::PadPlugin(int32_t size, std::vector<float> values)
    : mSize(size)
    , mValues(std::move(values))
{
    if (size <= 0)
    {
        throw std::invalid_argument("size must be positive");
    }
    initialize();
}

PadPlugin::~PadPlugin()
{
    cudaFree(mTable);
}

void PadPlugin::initialize()
{
    mCacheId = std::to_string(mSize);
}

IPluginCapability* PadPlugin::getCapabilityInterface(PluginCapabilityType type) noexcept
{
    try
    {
        if (type == PluginCapabilityType::kBUILD)
        {
            return static_cast<IPluginV3OneBuild*>(this);
        }
        if (type == PluginCapabilityType::kRUNTIME)
        {
            return static_cast<IPluginV3OneRuntime*>(this);
        }
        ACME_ASSERT(type == PluginCapabilityType::kCORE);
        return static_cast<IPluginV3OneCore*>(this);
    }
    catch (std::exception const& e)
    {
        logError(e);
    }
    return nullptr;
}

IPluginV3* PadPlugin::clone() noexcept
{
    try
    {
        auto twin = std::make_unique<PadPlugin>(mSize, mValues);
        twin->mTactic = mTactic;
        return twin.release();
    }
    catch (std::exception const& e)
    {
        logError(e);
    }
    return nullptr;
}

IPluginV3* PadPlugin::attachToContext(IPluginResourceContext* /*context*/) noexcept
{
    return clone();
}

int32_t PadPlugin::setTactic(int32_t tactic) noexcept
{
    mTactic = tactic;
    return 0;
}

int32_t PadPlugin::onShapeChange(
    PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs) noexcept
{
    try
    {
        if (nbInputs != 1)
        {
            throw std::runtime_error("one input is expected");
        }
        return cudaMalloc(&mTable, mSize * sizeof(float)) == cudaSuccess ? 0 : -1;
    }
    catch (std::exception const& e)
    {
        logError(e);
    }
    return -1;
}

int32_t PadPlugin::enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
    void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream) noexcept
{
    auto const n = static_cast<int32_t>(volume(inputDesc[0].dims));
    auto const* x = static_cast<float const*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    cudaMemcpyAsync(workspace, inputs[0], n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    if (mTactic == 2)
    {
        padTiles<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    }
    else
    {
        padRows<float><<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    }
    return cudaPeekAtLastError() == cudaSuccess ? 0 : -1;
}

PluginFieldCollection const* PadPlugin::getFieldsToSerialize() noexcept
{
    mFields.clear();
    mFields.emplace_back("size", &mSize, PluginFieldType::kINT32, 1);
    mFields.emplace_back(PluginField("values", mValues.data(), PluginFieldType::kFLOAT32, mValues.size()));
    mFieldCollection.nbFields = static_cast<int32_t>(mFields.size());
    mFieldCollection.fields = mFields.data();
    return &mFieldCollection;
}

IPluginV3* PadPluginCreator::createPlugin(
    char const* name, PluginFieldCollection const* fc, TensorRTPhase phase) noexcept
{
    try
    {
        int32_t size{32};
        std::vector<float> values;
        for (int32_t i = 0; i < fc->nbFields; ++i)
        {
            PluginField const& field = fc->fields[i];
            if (std::string(field.name) == "size")
            {
                size = *static_cast<int32_t const*>(field.data);
            }
            else if (std::string(field.name) == "values")
            {
                auto const* data = static_cast<float const*>(field.data);
                values.assign(data, data + field.length);
            }
        }
        return new PadPlugin(size, values);
    }
    catch (std::exception const& e)
    {
        logError(e);
    }
    return nullptr;
}

REGISTER_TENSORRT_PLUGIN(PadPluginCreator);
} // namespace acme
