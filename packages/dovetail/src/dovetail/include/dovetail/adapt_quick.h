// Plugins and creators of the quick interface as ones of IPluginV3.
#pragma once

#include "answers.h"
#include "guard.h"
#include "plugin_quick.h"

#include <memory>
#include <stdexcept>
#include <vector>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// Larger counts are mistakes: 4 types in 4 formats at 5 tensors are 1048576 combinations.
constexpr int32_t kMAX_COMBINATIONS = 1 << 20;

// A build capability that is told ranks with the types, and lists its combinations.
class DOVETAIL_PRIVATE QuickBuild : public IPluginV3OneBuildV2
{
public:
    static constexpr int32_t kMAJOR = 3;

    InterfaceInfo getInterfaceInfo() const override { return InterfaceInfo{"PLUGIN_V3ONE_BUILD", kMAJOR, 0}; }
    virtual int32_t getOutputDataTypesOfRanks(DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes,
        int32_t const* inputRanks, int32_t nbInputs) const = 0;
    virtual int32_t listCombinations(DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs,
        std::vector<PluginTensorDesc>& listed)
        = 0;
};

// A capability of a quick plugin; null where it has none, an error where it has one of another interface.
template <typename T>
T* quickCapability(IPluginV3& plugin, PluginCapabilityType type, char const* kind)
{
    auto* found = named("getCapabilityInterface", [&] { return plugin.getCapabilityInterface(type); });
    if (found && !sameText(named("getInterfaceInfo", [&] { return found->getInterfaceInfo(); }).kind, kind))
    {
        throw std::invalid_argument(
            "a plugin of IPluginCreatorV3Quick has a capability that is not of the quick interface, or a kernel that "
            "was compiled ahead of time, which is taken from Python only");
    }
    return static_cast<T*>(found);
}

// Row-major strides in elements.
inline Dims rowStrides(Dims const& dims)
{
    Dims strides{dims.nbDims, {}};
    DimsSize step = 1;
    for (int32_t i = dims.nbDims - 1; i >= 0; --i)
    {
        strides.d[i] = step;
        if (__builtin_mul_overflow(step, dims.d[i] > 0 ? dims.d[i] : 1, &step) && i > 0)
        {
            refuse("the stride of dimension %d does not fit into %d bits", i - 1, int32_t{8 * sizeof(step)});
        }
    }
    return strides;
}

class DOVETAIL_PRIVATE AdaptedQuickPlugin final : public IPluginV3,
                                                  public IPluginV3OneCore,
                                                  public QuickBuild,
                                                  public IPluginV3OneRuntime
{
public:
    explicit AdaptedQuickPlugin(std::unique_ptr<IPluginV3> plugin)
        : mPlugin{std::move(plugin)}
        , mCore{quickCapability<IPluginV3QuickCore>(*mPlugin, PluginCapabilityType::kCORE, "PLUGIN_V3QUICK_CORE")}
        , mBuild{quickCapability<IPluginV3QuickBuild>(*mPlugin, PluginCapabilityType::kBUILD, "PLUGIN_V3QUICK_BUILD")}
        , mRuntime{quickCapability<IPluginV3QuickRuntime>(
              *mPlugin, PluginCapabilityType::kRUNTIME, "PLUGIN_V3QUICK_RUNTIME")}
    {
    }
    AdaptedQuickPlugin(AdaptedQuickPlugin const&) = delete;

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return mCore ? static_cast<IPluginV3OneCore*>(this) : nullptr;
        case PluginCapabilityType::kBUILD: return mBuild ? static_cast<IPluginV3OneBuildV2*>(this) : nullptr;
        case PluginCapabilityType::kRUNTIME: return mRuntime ? static_cast<IPluginV3OneRuntime*>(this) : nullptr;
        }
        return nullptr;
    }

    IPluginV3* clone() override
    {
        auto* twin = mPlugin->clone();
        if (twin == mPlugin.get())
        {
            return this;
        }
        return twin ? new AdaptedQuickPlugin{std::unique_ptr<IPluginV3>{twin}} : nullptr;
    }

    AsciiChar const* getPluginName() const override { return mCore->getPluginName(); }
    AsciiChar const* getPluginVersion() const override { return mCore->getPluginVersion(); }
    AsciiChar const* getPluginNamespace() const override { return mCore->getPluginNamespace(); }

    int32_t getNbOutputs() const override { return mBuild->getNbOutputs(); }
    int32_t getOutputDataTypes(DataType*, int32_t, DataType const*, int32_t) const override { return 1; }
    int32_t getOutputDataTypesOfRanks(DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes,
        int32_t const* inputRanks, int32_t nbInputs) const override
    {
        return mBuild->getOutputDataTypes(outputTypes, nbOutputs, inputTypes, inputRanks, nbInputs);
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder) override
    {
        return mBuild->getOutputShapes(inputs, nbInputs, shapeInputs, nbShapeInputs, outputs, nbOutputs, exprBuilder);
    }
    int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        return mBuild->configurePlugin(in, nbInputs, out, nbOutputs);
    }

    int32_t listCombinations(DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs,
        std::vector<PluginTensorDesc>& listed) override
    {
        int32_t const count = named("getNbSupportedFormatCombinations",
            [&] { return mBuild->getNbSupportedFormatCombinations(inOut, nbInputs, nbOutputs); });
        if (count < 0 || count > kMAX_COMBINATIONS)
        {
            refuse("getNbSupportedFormatCombinations returned %d; expected 0 to %d", count, kMAX_COMBINATIONS);
        }
        Answers<PluginTensorDesc> answers{count * (nbInputs + nbOutputs), PluginTensorDesc{}};
        int32_t const status
            = mBuild->getSupportedFormatCombinations(inOut, nbInputs, nbOutputs, answers.data(), count);
        listed = answers.take();
        return status;
    }
    // Combinations are listed.
    bool supportsFormatCombination(int32_t, DynamicPluginTensorDesc const*, int32_t, int32_t) override { return false; }

    int32_t getAliasedInput(int32_t outputIndex) override { return mBuild->getAliasedInput(outputIndex); }
    int32_t getValidTactics(int32_t* tactics, int32_t nbTactics) override
    {
        return mBuild->getValidTactics(tactics, nbTactics);
    }
    int32_t getNbTactics() override { return mBuild->getNbTactics(); }
    char const* getTimingCacheID() override { return mBuild->getTimingCacheID(); }
    char const* getMetadataString() override { return mBuild->getMetadataString(); }

    int32_t setTactic(int32_t tactic) override { return mRuntime->setTactic(tactic); }
    int32_t onShapeChange(
        PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs) override
    {
        mInputStrides.clear();
        mOutputStrides.clear();
        for (int32_t i = 0; i < nbInputs; ++i)
        {
            mInputStrides.push_back(rowStrides(in[i].dims));
        }
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            mOutputStrides.push_back(rowStrides(out[i].dims));
        }
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t stream) override
    {
        return mRuntime->enqueue(inputDesc, outputDesc, inputs, outputs, mInputStrides.data(), mOutputStrides.data(),
            static_cast<int32_t>(mInputStrides.size()), static_cast<int32_t>(mOutputStrides.size()), stream);
    }
    IPluginV3* attachToContext(IPluginResourceContext*) override { return clone(); }
    PluginFieldCollection const* getFieldsToSerialize() override { return mRuntime->getFieldsToSerialize(); }

private:
    std::unique_ptr<IPluginV3> mPlugin;
    IPluginV3QuickCore* mCore;
    IPluginV3QuickBuild* mBuild;
    IPluginV3QuickRuntime* mRuntime;
    std::vector<Dims> mInputStrides, mOutputStrides;
};

class DOVETAIL_PRIVATE AdaptedQuickCreator final : public IPluginCreatorV3One
{
public:
    explicit AdaptedQuickCreator(IPluginCreatorV3Quick* creator) noexcept
        : mCreator{creator}
    {
    }

    IPluginCreatorV3Quick* adapted() const noexcept { return mCreator; }
    AsciiChar const* getPluginName() const override { return mCreator->getPluginName(); }
    AsciiChar const* getPluginVersion() const override { return mCreator->getPluginVersion(); }
    AsciiChar const* getPluginNamespace() const override { return mCreator->getPluginNamespace(); }
    PluginFieldCollection const* getFieldNames() override { return mCreator->getFieldNames(); }

    IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc, TensorRTPhase phase) override
    {
        auto const* const space = named("getPluginNamespace", [&] { return mCreator->getPluginNamespace(); });
        std::unique_ptr<IPluginV3> made{
            mCreator->createPlugin(name, space, fc, phase, QuickPluginCreationRequest::kPREFER_JIT)};
        return made ? new AdaptedQuickPlugin{std::move(made)} : nullptr;
    }

private:
    IPluginCreatorV3Quick* mCreator;
};

} // namespace detail
} // namespace dovetail
