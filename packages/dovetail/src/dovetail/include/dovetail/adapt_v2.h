// Plugins and creators of the older interface as ones of IPluginV3.
#pragma once

#include "plugin_v2.h"

#include <cstring>
#include <stdexcept>
#include <vector>

namespace dovetail
{
namespace detail
{

// Under this name a plan keeps what serialize() wrote.
constexpr char const* kSERIALIZED = "serialized_plugin_v2";

class DOVETAIL_PRIVATE AdaptedV2Plugin final : public IPluginV3,
                                               public IPluginV3OneCore,
                                               public IPluginV3OneBuild,
                                               public IPluginV3OneRuntime
{
public:
    explicit AdaptedV2Plugin(IPluginV2DynamicExt* plugin) noexcept
        : mPlugin{plugin}
    {
    }
    AdaptedV2Plugin(AdaptedV2Plugin const&) = delete;

    ~AdaptedV2Plugin() override
    {
        if (mIsInitialized)
        {
            mPlugin->terminate();
        }
        if (mIsAttached)
        {
            mPlugin->detachFromContext();
        }
        mPlugin->destroy();
    }

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    IPluginV3* clone() override { return cloneAdapted(); }

    AsciiChar const* getPluginName() const override { return mPlugin->getPluginType(); }
    AsciiChar const* getPluginVersion() const override { return mPlugin->getPluginVersion(); }
    AsciiChar const* getPluginNamespace() const override { return mPlugin->getPluginNamespace(); }

    int32_t getNbOutputs() const override { return mPlugin->getNbOutputs(); }

    int32_t getOutputDataTypes(
        DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes, int32_t nbInputs) const override
    {
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            outputTypes[i] = mPlugin->getOutputDataType(i, inputTypes, nbInputs);
        }
        return 0;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t nbShapeInputs,
        DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder) override
    {
        if (nbShapeInputs)
        {
            throw std::invalid_argument("an IPluginV2DynamicExt takes no shape inputs");
        }
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            outputs[i] = mPlugin->getOutputDimensions(i, inputs, nbInputs, exprBuilder);
        }
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) override
    {
        std::vector<PluginTensorDesc> descs;
        for (int32_t i = 0; i < nbInputs + nbOutputs; ++i)
        {
            descs.push_back(inOut[i].desc);
        }
        return mPlugin->supportsFormatCombination(pos, descs.data(), nbInputs, nbOutputs);
    }

    int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        mPlugin->configurePlugin(in, nbInputs, out, nbOutputs);
        return 0;
    }

    size_t getWorkspaceSize(DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
        DynamicPluginTensorDesc const* outputs, int32_t nbOutputs) const override
    {
        auto const in = atLargest(inputs, nbInputs);
        auto const out = atLargest(outputs, nbOutputs);
        return mPlugin->getWorkspaceSize(in.data(), nbInputs, out.data(), nbOutputs);
    }

    // The older contract configures before every change of shapes, and initializes before the first run.
    int32_t onShapeChange(
        PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs) override
    {
        auto const inputs = asFixed(in, nbInputs);
        auto const outputs = asFixed(out, nbOutputs);
        mPlugin->configurePlugin(inputs.data(), nbInputs, outputs.data(), nbOutputs);
        int32_t const status = mIsInitialized ? 0 : mPlugin->initialize();
        mIsInitialized = status == 0;
        return status;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t stream) override
    {
        return mPlugin->enqueue(inputDesc, outputDesc, inputs, outputs, workspace, stream);
    }

    IPluginV3* attachToContext(IPluginResourceContext*) override
    {
        auto* twin = cloneAdapted();
        if (twin)
        {
            twin->mPlugin->attachToContext(nullptr, nullptr, nullptr);
            twin->mIsAttached = true;
        }
        return twin;
    }

    PluginFieldCollection const* getFieldsToSerialize() override
    {
        mSerialized.assign(mPlugin->getSerializationSize(), 0);
        mPlugin->serialize(mSerialized.data());
        auto const length = static_cast<int32_t>(mSerialized.size());
        mField = {kSERIALIZED, mSerialized.data(), PluginFieldType::kUNKNOWN, length};
        mFields = {1, &mField};
        return &mFields;
    }

private:
    AdaptedV2Plugin* cloneAdapted() const
    {
        auto* twin = mPlugin->clone();
        return twin ? new AdaptedV2Plugin{twin} : nullptr;
    }

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

    IPluginV2DynamicExt* mPlugin;
    bool mIsInitialized{false};
    bool mIsAttached{false};
    std::vector<char> mSerialized;
    PluginField mField;
    PluginFieldCollection mFields;
};

class DOVETAIL_PRIVATE AdaptedV2Creator final : public IPluginCreatorV3One
{
public:
    explicit AdaptedV2Creator(IPluginCreator* creator) noexcept
        : mCreator{creator}
    {
    }

    IPluginCreator* adapted() const noexcept { return mCreator; }
    AsciiChar const* getPluginName() const override { return mCreator->getPluginName(); }
    AsciiChar const* getPluginVersion() const override { return mCreator->getPluginVersion(); }
    AsciiChar const* getPluginNamespace() const override
    {
        auto const* place = mCreator->getPluginNamespace();
        return place ? place : "";
    }
    PluginFieldCollection const* getFieldNames() override { return mCreator->getFieldNames(); }

    IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc, TensorRTPhase phase) override
    {
        IPluginV2* made = phase == TensorRTPhase::kBUILD ? mCreator->createPlugin(name, fc) : deserialize(name, *fc);
        if (!made)
        {
            return nullptr;
        }
        made->setPluginNamespace(getPluginNamespace());
        return new AdaptedV2Plugin{made->asDynamicExt()};
    }

private:
    IPluginV2* deserialize(AsciiChar const* name, PluginFieldCollection const& fc)
    {
        for (int32_t i = 0; i < fc.nbFields; ++i)
        {
            if (!std::strcmp(fc.fields[i].name, kSERIALIZED))
            {
                return mCreator->deserializePlugin(name, fc.fields[i].data, static_cast<size_t>(fc.fields[i].length));
            }
        }
        throw std::invalid_argument("the plan has no field 'serialized_plugin_v2' for deserializePlugin");
    }

    IPluginCreator* mCreator;
};

} // namespace detail
} // namespace dovetail
