// The interfaces of plugins that list their combinations of formats and run with strides.
//
// The contract has them for the decorators of Python. A plugin in C++ that implements them runs by its runtime
// capability; kernels that were compiled ahead of time are taken from Python only.
#pragma once

#include "plugin.h"

namespace nvinfer1
{
inline namespace dovetail_v1
{

// How a plugin should be made: to run by its runtime capability (just in time), or as a kernel (ahead of time).
enum class QuickPluginCreationRequest : int32_t
{
    kUNKNOWN = 0,
    kPREFER_JIT = 1,
    kPREFER_AOT = 2,
    kSTRICT_JIT = 3,
    kSTRICT_AOT = 4,
};

class IPluginV3QuickCore : public IPluginCapability
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3QUICK_CORE", 1, 0}; }
    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
};

class IPluginV3QuickBuild : public IPluginCapability
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3QUICK_BUILD", 1, 0}; }
    virtual int32_t getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes,
        int32_t const* inputRanks, int32_t nbInputs) const = 0;
    virtual int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder)
        = 0;
    virtual int32_t configurePlugin(
        DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out, int32_t nbOutputs)
        = 0;
    virtual int32_t getNbSupportedFormatCombinations(
        DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs)
        = 0;
    // As many times nbInputs + nbOutputs descriptions as there are combinations.
    virtual int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const* inOut, int32_t nbInputs,
        int32_t nbOutputs, PluginTensorDesc* supportedCombinations, int32_t nbFormatCombinations)
        = 0;
    virtual int32_t getNbOutputs() const = 0;
    virtual int32_t getAliasedInput(int32_t /*outputIndex*/) { return -1; }
    virtual int32_t getValidTactics(int32_t* /*tactics*/, int32_t /*nbTactics*/) { return 0; }
    virtual int32_t getNbTactics() { return 0; }
    virtual char const* getTimingCacheID() { return nullptr; }
    virtual char const* getMetadataString() { return nullptr; }
};

class IPluginV3QuickRuntime : public IPluginCapability
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3QUICK_RUNTIME", 1, 0}; }
    virtual int32_t setTactic(int32_t /*tactic*/) { return 0; }
    // Strides count elements.
    virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, Dims const* inputStrides, Dims const* outputStrides,
        int32_t nbInputs, int32_t nbOutputs, cudaStream_t stream)
        = 0;
    virtual PluginFieldCollection const* getFieldsToSerialize() = 0;
};

class IPluginCreatorV3Quick : public IPluginCreatorInterface
{
public:
    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN CREATOR_V3QUICK", 1, 0}; }
    virtual IPluginV3* createPlugin(AsciiChar const* name, AsciiChar const* nspace, PluginFieldCollection const* fc,
        TensorRTPhase phase, QuickPluginCreationRequest quickPluginCreationRequest)
        = 0;
    virtual PluginFieldCollection const* getFieldNames() = 0;
    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual AsciiChar const* getPluginNamespace() const = 0;
};

} // namespace dovetail_v1
} // namespace nvinfer1
