// How the questions of the IPluginV3 contract are put to a plugin of one of the older interfaces.
#pragma once

#include "method.h"
#include "plugin_v2.h"
#include "refuse.h"

#include <vector>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// One plugin, asked in the words of its interface. It keeps no state.
class DOVETAIL_PRIVATE Dialect
{
public:
    virtual ~Dialect() = default;
    virtual IPluginV2& plugin() const noexcept = 0;
    virtual void attach(IGpuAllocator* allocator) = 0;
    virtual void detach() = 0;
    // Whether initialize comes before getWorkspaceSize.
    virtual bool asksWorkspaceInitialized() const noexcept = 0;
    virtual DataType outputType(int32_t index, DataType const* inputTypes, int32_t nbInputs) const = 0;
    virtual void outputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs* outputs, int32_t nbOutputs,
        IExprBuilder& builder)
        = 0;
    virtual bool supports(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) = 0;
    virtual void configure(
        DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out, int32_t nbOutputs)
        = 0;
    virtual size_t workspaceSize(DynamicPluginTensorDesc const* in, int32_t nbInputs,
        DynamicPluginTensorDesc const* out, int32_t nbOutputs) const = 0;
    virtual void shapeChange(
        PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs)
        = 0;
    virtual int32_t run(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream)
        = 0;
};

// IPluginV2DynamicExt: whole shapes, asked one output at a time.
class DOVETAIL_PRIVATE DynamicDialect final : public Dialect
{
public:
    explicit DynamicDialect(IPluginV2DynamicExt& plugin) noexcept
        : mPlugin{plugin}
    {
    }

    IPluginV2& plugin() const noexcept override { return mPlugin; }
    void attach(IGpuAllocator* allocator) override
    {
        named("attachToContext", [&] { mPlugin.attachToContext(nullptr, nullptr, allocator); });
    }
    void detach() override { mPlugin.detachFromContext(); }
    bool asksWorkspaceInitialized() const noexcept override { return false; }

    DataType outputType(int32_t index, DataType const* inputTypes, int32_t nbInputs) const override
    {
        return named("getOutputDataType", [&] { return mPlugin.getOutputDataType(index, inputTypes, nbInputs); });
    }

    void outputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs* outputs, int32_t nbOutputs,
        IExprBuilder& builder) override
    {
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            outputs[i] = named("getOutputDimensions",
                [&] { return mPlugin.getOutputDimensions(i, inputs, nbInputs, builder); });
        }
    }

    bool supports(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) override
    {
        std::vector<PluginTensorDesc> descs;
        for (int32_t i = 0; i < nbInputs + nbOutputs; ++i)
        {
            descs.push_back(inOut[i].desc);
        }
        return mPlugin.supportsFormatCombination(pos, descs.data(), nbInputs, nbOutputs);
    }

    void configure(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        mPlugin.configurePlugin(in, nbInputs, out, nbOutputs);
    }

    size_t workspaceSize(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) const override
    {
        auto const inputs = atLargest(in, nbInputs);
        auto const outputs = atLargest(out, nbOutputs);
        return mPlugin.getWorkspaceSize(inputs.data(), nbInputs, outputs.data(), nbOutputs);
    }

    // This interface has configurePlugin for concrete shapes too.
    void shapeChange(
        PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs) override
    {
        auto const inputs = asFixed(in, nbInputs);
        auto const outputs = asFixed(out, nbOutputs);
        named("configurePlugin",
            [&] { mPlugin.configurePlugin(inputs.data(), nbInputs, outputs.data(), nbOutputs); });
    }

    int32_t run(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t stream) override
    {
        return mPlugin.enqueue(inputDesc, outputDesc, inputs, outputs, workspace, stream);
    }

private:
    static std::vector<PluginTensorDesc> atLargest(DynamicPluginTensorDesc const* descs, int32_t count)
    {
        std::vector<PluginTensorDesc> largest;
        for (int32_t i = 0; i < count; ++i)
        {
            largest.push_back(descs[i].desc);
            largest.back().dims = descs[i].max;
        }
        return largest;
    }

    static std::vector<DynamicPluginTensorDesc> asFixed(PluginTensorDesc const* descs, int32_t count)
    {
        std::vector<DynamicPluginTensorDesc> fixed;
        for (int32_t i = 0; i < count; ++i)
        {
            fixed.push_back({descs[i], descs[i].dims, descs[i].dims, descs[i].dims});
        }
        return fixed;
    }

    IPluginV2DynamicExt& mPlugin;
};

} // namespace detail
} // namespace dovetail
