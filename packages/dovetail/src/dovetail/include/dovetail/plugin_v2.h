// The older plugin interface for dynamic shapes and its creator.
#pragma once

#include "plugin.h"

struct cudnnContext;
struct cublasContext;

namespace dovetail
{

class IPluginV2DynamicExt;

// What all plugins of the older interfaces have. Only IPluginV2DynamicExt can be implemented.
class IPluginV2
{
public:
    virtual AsciiChar const* getPluginType() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual int32_t getNbOutputs() const = 0;
    virtual int32_t initialize() = 0;
    virtual void terminate() = 0;
    virtual size_t getSerializationSize() const = 0;
    virtual void serialize(void* buffer) const = 0;
    virtual void destroy() = 0;
    virtual IPluginV2* clone() const = 0;
    virtual void setPluginNamespace(AsciiChar const* pluginNamespace) = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
    virtual IPluginV2DynamicExt* asDynamicExt() noexcept = 0;

    virtual ~IPluginV2() noexcept = default;

protected:
    IPluginV2() = default;
    IPluginV2(IPluginV2 const&) = default;
    IPluginV2(IPluginV2&&) = default;
    IPluginV2& operator=(IPluginV2 const&) & = default;
    IPluginV2& operator=(IPluginV2&&) & = default;
};

class IPluginV2Ext : public IPluginV2
{
public:
    virtual DataType getOutputDataType(int32_t index, DataType const* inputTypes, int32_t nbInputs) const = 0;
    // All three are null.
    virtual void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator*) {}
    virtual void detachFromContext() {}
    IPluginV2Ext* clone() const override = 0;
};

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
    IPluginV2DynamicExt* asDynamicExt() noexcept final { return this; }
};

class IPluginCreator : public IPluginCreatorInterface
{
public:
    InterfaceInfo getInterfaceInfo() const noexcept override { return InterfaceInfo{"PLUGIN CREATOR_V1", 1, 0}; }
    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual PluginFieldCollection const* getFieldNames() = 0;
    virtual IPluginV2* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc) = 0;
    virtual IPluginV2* deserializePlugin(AsciiChar const* name, void const* serialData, size_t serialLength) = 0;
    virtual void setPluginNamespace(AsciiChar const* pluginNamespace) = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
};

} // namespace dovetail
