// The interfaces of a plugin and its creator.
//
// Methods are declared without noexcept: an override may be noexcept, as plugins usually write it, or throw. An
// exception of an override becomes an error that names the plugin and the method; an exception of a noexcept override
// or of a destructor terminates the process, as the language defines it. Destructors are noexcept, because the
// destructor of a class must not be looser than those of all its bases.
#pragma once

#include "context.h"
#include "expr.h"
#include "types.h"

namespace nvinfer1
{
inline namespace dovetail_v1
{

class IVersionedInterface
{
public:
    virtual APILanguage getAPILanguage() const { return APILanguage::kCPP; }
    virtual InterfaceInfo getInterfaceInfo() const = 0;
    virtual ~IVersionedInterface() noexcept = default;

protected:
    IVersionedInterface() = default;
    IVersionedInterface(IVersionedInterface const&) = default;
    IVersionedInterface(IVersionedInterface&&) = default;
    IVersionedInterface& operator=(IVersionedInterface const&) & = default;
    IVersionedInterface& operator=(IVersionedInterface&&) & = default;
};

// Something that plugins share under a key of the registry, which keeps a clone of what it is given.
class IPluginResource : public IVersionedInterface
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"IPluginResource", 1, 0}; }
    virtual int32_t release() = 0;
    virtual IPluginResource* clone() = 0;
};

class IPluginCapability : public IVersionedInterface
{
};

class IPluginV3 : public IVersionedInterface
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN", 1, 0}; }
    virtual IPluginCapability* getCapabilityInterface(PluginCapabilityType type) = 0;
    virtual IPluginV3* clone() = 0;
};

class IPluginV3OneCore : public IPluginCapability
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3ONE_CORE", 1, 0}; }
    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
};

class IPluginV3OneBuild : public IPluginCapability
{
public:
    static constexpr int32_t kDEFAULT_FORMAT_COMBINATION_LIMIT = 100;

    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3ONE_BUILD", 1, 0}; }
    virtual int32_t configurePlugin(
        DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out, int32_t nbOutputs)
        = 0;
    virtual int32_t getOutputDataTypes(
        DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes, int32_t nbInputs) const = 0;
    virtual int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder)
        = 0;
    virtual bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs)
        = 0;
    virtual int32_t getNbOutputs() const = 0;
    virtual size_t getWorkspaceSize(DynamicPluginTensorDesc const* /*inputs*/, int32_t /*nbInputs*/,
        DynamicPluginTensorDesc const* /*outputs*/, int32_t /*nbOutputs*/) const
    {
        return 0;
    }
    virtual int32_t getValidTactics(int32_t* /*tactics*/, int32_t /*nbTactics*/) { return 0; }
    virtual int32_t getNbTactics() { return 0; }
    virtual char const* getTimingCacheID() { return nullptr; }
    virtual int32_t getFormatCombinationLimit() { return kDEFAULT_FORMAT_COMBINATION_LIMIT; }
    virtual char const* getMetadataString() { return nullptr; }
};

// The build capability with outputs that share the memory of an input.
class IPluginV3OneBuildV2 : public IPluginV3OneBuild
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3ONE_BUILD", 2, 0}; }
    virtual int32_t getAliasedInput(int32_t /*outputIndex*/) { return -1; }
};

class IPluginV3OneRuntime : public IPluginCapability
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3ONE_RUNTIME", 1, 0}; }
    virtual int32_t setTactic(int32_t /*tactic*/) { return 0; }
    virtual int32_t onShapeChange(
        PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs)
        = 0;
    virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream)
        = 0;
    virtual IPluginV3* attachToContext(IPluginResourceContext* context) = 0;
    virtual PluginFieldCollection const* getFieldsToSerialize() = 0;
};

class IPluginCreatorInterface : public IVersionedInterface
{
};

class IPluginCreatorV3One : public IPluginCreatorInterface
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN CREATOR_V3ONE", 1, 0}; }
    virtual IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc, TensorRTPhase phase) = 0;
    virtual PluginFieldCollection const* getFieldNames() = 0;
    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
};

} // namespace dovetail_v1
} // namespace nvinfer1
