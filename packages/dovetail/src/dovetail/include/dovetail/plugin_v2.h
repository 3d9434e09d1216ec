// The older plugin interfaces and their creator.
//
// IPluginV2, IPluginV2Ext and IPluginV2IOExt never see the batch: the first dimension of each tensor is the batch, the
// shapes they are told are without it, and a run gets its size as a number. IPluginV2DynamicExt sees whole shapes.
#pragma once

#include "plugin.h"

#include "../NvInferVersion.h"

#include <stdexcept>

struct cudnnContext;
struct cublasContext;

namespace nvinfer1
{
inline namespace dovetail_v1
{

// Which interface a plugin implements: the upper byte of getTensorRTVersion.
enum class PluginVersion : uint8_t
{
    kV2 = 0,
    kV2_EXT = 1,
    kV2_IOEXT = 2,
    kV2_DYNAMICEXT = 3,
};

constexpr int32_t tagVersion(PluginVersion version) noexcept
{
    return static_cast<int32_t>(static_cast<uint32_t>(version) << 24 | (NV_TENSORRT_VERSION & 0xFFFFFF));
}

// One data type and one format for all tensors.
class IPluginV2
{
public:
    virtual int32_t getTensorRTVersion() const { return tagVersion(PluginVersion::kV2); }
    virtual AsciiChar const* getPluginType() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual int32_t getNbOutputs() const = 0;
    virtual Dims getOutputDimensions(int32_t index, Dims const* inputs, int32_t nbInputDims) = 0;
    virtual bool supportsFormat(DataType type, PluginFormat format) const = 0;
    virtual void configureWithFormat(Dims const* inputDims, int32_t nbInputs, Dims const* outputDims, int32_t nbOutputs,
        DataType type, PluginFormat format, int32_t maxBatchSize)
        = 0;
    virtual int32_t initialize() = 0;
    virtual void terminate() = 0;
    virtual size_t getWorkspaceSize(int32_t maxBatchSize) const = 0;
    // Sources of before version 8 override the form with void**, later ones the form with void* const*.
    virtual int32_t enqueue(
        int32_t batchSize, void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream)
    {
        return enqueue(batchSize, inputs, const_cast<void**>(outputs), workspace, stream);
    }
    virtual int32_t enqueue(int32_t, void const* const*, void**, void*, cudaStream_t)
    {
        throw std::logic_error("the plugin does not override enqueue(batchSize, inputs, outputs, workspace, stream)");
    }
    virtual size_t getSerializationSize() const = 0;
    virtual void serialize(void* buffer) const = 0;
    virtual void destroy() = 0;
    virtual IPluginV2* clone() const = 0;
    virtual void setPluginNamespace(AsciiChar const* pluginNamespace) = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;

    virtual ~IPluginV2() noexcept = default;

protected:
    IPluginV2() = default;
    IPluginV2(IPluginV2 const&) = default;
    IPluginV2(IPluginV2&&) = default;
    IPluginV2& operator=(IPluginV2 const&) & = default;
    IPluginV2& operator=(IPluginV2&&) & = default;
};

// Outputs with types of their own.
class IPluginV2Ext : public IPluginV2
{
public:
    virtual DataType getOutputDataType(int32_t index, DataType const* inputTypes, int32_t nbInputs) const = 0;
    // Never called. Sources for version 10 do not override the next two, earlier ones do.
    virtual bool isOutputBroadcastAcrossBatch(
        int32_t /*outputIndex*/, bool const* /*inputIsBroadcasted*/, int32_t /*nbInputs*/) const
    {
        return false;
    }
    virtual bool canBroadcastInputAcrossBatch(int32_t /*inputIndex*/) const { return false; }
    virtual void configurePlugin(Dims const* inputDims, int32_t nbInputs, Dims const* outputDims, int32_t nbOutputs,
        DataType const* inputTypes, DataType const* outputTypes, bool const* inputIsBroadcast,
        bool const* outputIsBroadcast, PluginFormat floatFormat, int32_t maxBatchSize)
        = 0;
    // The handles of cuDNN and cuBLAS are null: make your own.
    virtual void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator*) {}
    virtual void detachFromContext() {}
    IPluginV2Ext* clone() const override = 0;

protected:
    int32_t getTensorRTVersion() const override { return tagVersion(PluginVersion::kV2_EXT); }
    void configureWithFormat(
        Dims const*, int32_t, Dims const*, int32_t, DataType, PluginFormat, int32_t) override
    {
    }
};

// A type and a format of its own for each tensor.
class IPluginV2IOExt : public IPluginV2Ext
{
public:
    virtual void configurePlugin(
        PluginTensorDesc const* in, int32_t nbInput, PluginTensorDesc const* out, int32_t nbOutput)
        = 0;
    virtual bool supportsFormatCombination(
        int32_t pos, PluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) const = 0;

protected:
    int32_t getTensorRTVersion() const override { return tagVersion(PluginVersion::kV2_IOEXT); }
    // Protected, because plugins name them in using declarations.
    void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*, DataType const*, bool const*,
        bool const*, PluginFormat, int32_t) final
    {
    }
    bool supportsFormat(DataType, PluginFormat) const final { return false; }
};

// Shapes that vary, as expressions while a network is built.
class IPluginV2DynamicExt : public IPluginV2Ext
{
public:
    static constexpr int32_t kFORMAT_COMBINATION_LIMIT = 100;

    IPluginV2DynamicExt* clone() const override = 0;
    virtual DimsExprs getOutputDimensions(
        int32_t outputIndex, DimsExprs const* inputs, int32_t nbInputs, IExprBuilder& exprBuilder)
        = 0;
    virtual bool supportsFormatCombination(
        int32_t pos, PluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs)
        = 0;
    virtual void configurePlugin(
        DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out, int32_t nbOutputs)
        = 0;
    virtual size_t getWorkspaceSize(
        PluginTensorDesc const* inputs, int32_t nbInputs, PluginTensorDesc const* outputs, int32_t nbOutputs) const = 0;
    virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream)
        = 0;

protected:
    int32_t getTensorRTVersion() const override { return tagVersion(PluginVersion::kV2_DYNAMICEXT); }
    Dims getOutputDimensions(int32_t, Dims const*, int32_t) final { return Dims{-1, {}}; }
    bool isOutputBroadcastAcrossBatch(int32_t, bool const*, int32_t) const final { return false; }
    bool canBroadcastInputAcrossBatch(int32_t) const final { return true; }
    bool supportsFormat(DataType, PluginFormat) const final { return false; }
    void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*, DataType const*, bool const*,
        bool const*, PluginFormat, int32_t) final
    {
    }
    size_t getWorkspaceSize(int32_t) const final { return 0; }
    int32_t enqueue(int32_t, void const* const*, void* const*, void*, cudaStream_t) final { return 1; }
    int32_t enqueue(int32_t, void const* const*, void**, void*, cudaStream_t) final { return 1; }
};

class IPluginCreator : public IPluginCreatorInterface
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN CREATOR_V1", 1, 0}; }
    virtual int32_t getTensorRTVersion() const { return NV_TENSORRT_VERSION; }
    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual PluginFieldCollection const* getFieldNames() = 0;
    virtual IPluginV2* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc) = 0;
    virtual IPluginV2* deserializePlugin(AsciiChar const* name, void const* serialData, size_t serialLength) = 0;
    virtual void setPluginNamespace(AsciiChar const* pluginNamespace) = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
};

} // namespace dovetail_v1
} // namespace nvinfer1
