// Plugins and creators of the older interface as ones of IPluginV3.
#pragma once

#include "implicit_batch.h"
#include "method.h"

#include <cstring>
#include <limits>

namespace dovetail
{
namespace detail
{

// Under this name a plan keeps what serialize() wrote.
constexpr char const* kSERIALIZED = "serialized_plugin_v2";
// Bytes after the memory for serialize(), which it must leave unchanged.
constexpr size_t kGUARD_BYTES = 64;
constexpr char kGUARD = 0x5A;

// One V2 object with the engine's part of its life.
//
// As the older contract has it, initialize is called on the object of an engine and not on its clones, which are made
// in an initialized state. While a plan is built the object that runs is initialized, when it first has to be.
class DOVETAIL_PRIVATE AdaptedV2Plugin final : public IPluginV3,
                                               public IPluginV3OneCore,
                                               public IPluginV3OneBuild,
                                               public IPluginV3OneRuntime
{
public:
    AdaptedV2Plugin(IPluginV2& plugin, bool isInitialized)
        : mPlugin{plugin}
        , mDialect{chooseDialect(plugin)}
        , mIsInitialized{isInitialized}
    {
    }
    AdaptedV2Plugin(AdaptedV2Plugin const&) = delete;

    ~AdaptedV2Plugin() override
    {
        if (mIsAttached)
        {
            callReleasing("detachFromContext", [&] { mDialect->detach(); });
        }
        if (mMustTerminate)
        {
            callReleasing("terminate", [&] { mPlugin.terminate(); });
        }
        callReleasing("destroy", [&] { mPlugin.destroy(); });
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

    AsciiChar const* getPluginName() const override
    {
        return named("getPluginType", [&] { return mPlugin.getPluginType(); });
    }
    AsciiChar const* getPluginVersion() const override { return mPlugin.getPluginVersion(); }
    AsciiChar const* getPluginNamespace() const override
    {
        auto const* place = mPlugin.getPluginNamespace();
        return place ? place : "";
    }

    int32_t getNbOutputs() const override { return mPlugin.getNbOutputs(); }

    int32_t getOutputDataTypes(
        DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes, int32_t nbInputs) const override
    {
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            outputTypes[i] = mDialect->outputType(i, inputTypes, nbInputs);
        }
        return 0;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t nbShapeInputs,
        DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& exprBuilder) override
    {
        if (nbShapeInputs)
        {
            throw std::invalid_argument("a V2 plugin has no shape inputs: pass the tensors as inputs");
        }
        mDialect->outputShapes(inputs, nbInputs, outputs, nbOutputs, exprBuilder);
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) override
    {
        return mDialect->supports(pos, inOut, nbInputs, nbOutputs);
    }

    int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* out,
        int32_t nbOutputs) override
    {
        mDialect->configure(in, nbInputs, out, nbOutputs);
        return 0;
    }

    size_t getWorkspaceSize(DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
        DynamicPluginTensorDesc const* outputs, int32_t nbOutputs) const override
    {
        if (mDialect->asksWorkspaceInitialized())
        {
            ensureInitialized();
        }
        return mDialect->workspaceSize(inputs, nbInputs, outputs, nbOutputs);
    }

    int32_t onShapeChange(
        PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* out, int32_t nbOutputs) override
    {
        ensureInitialized();
        mDialect->shapeChange(in, nbInputs, out, nbOutputs);
        return 0;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t stream) override
    {
        return mDialect->run(inputDesc, outputDesc, inputs, outputs, workspace, stream);
    }

    IPluginV3* attachToContext(IPluginResourceContext* context) override
    {
        auto* twin = cloneAdapted();
        if (twin)
        {
            twin->mDialect->attach(context ? context->getGpuAllocator() : nullptr);
            twin->mIsAttached = true;
        }
        return twin;
    }

    PluginFieldCollection const* getFieldsToSerialize() override
    {
        size_t const size = named("getSerializationSize", [&] { return mPlugin.getSerializationSize(); });
        if (size > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        {
            throw std::length_error("getSerializationSize returned more than 2147483647 bytes, the largest field");
        }
        mSerialized.assign(size + kGUARD_BYTES, kGUARD);
        if (size)
        {
            named("serialize", [&] { mPlugin.serialize(mSerialized.data()); });
        }
        for (size_t i = size; i < mSerialized.size(); ++i)
        {
            if (mSerialized[i] != kGUARD)
            {
                throw std::length_error("serialize wrote past the bytes that getSerializationSize returned");
            }
        }
        mSerialized.resize(size);
        auto const length = static_cast<int32_t>(mSerialized.size());
        mField = {kSERIALIZED, mSerialized.data(), PluginFieldType::kUNKNOWN, length};
        mFields = {1, &mField};
        return &mFields;
    }

    void ensureInitialized() const
    {
        if (mIsInitialized)
        {
            return;
        }
        if (int32_t const status = named("initialize", [&] { return mPlugin.initialize(); }))
        {
            refuse("initialize returned status %d instead of %d", status, 0);
        }
        mIsInitialized = mMustTerminate = true;
    }

private:
    AdaptedV2Plugin* cloneAdapted() const
    {
        auto* twin = named("clone", [&] { return mPlugin.clone(); });
        if (twin == &mPlugin)
        {
            throw std::invalid_argument("clone returned the object itself: two owners would destroy it (rule R24)");
        }
        return twin ? new AdaptedV2Plugin{*twin, mIsInitialized} : nullptr;
    }

    IPluginV2& mPlugin;
    std::unique_ptr<Dialect> mDialect;
    mutable bool mIsInitialized;
    mutable bool mMustTerminate{false};
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
    // Creators that take no fields return null here.
    PluginFieldCollection const* getFieldNames() override
    {
        auto const* fields = mCreator->getFieldNames();
        return fields ? fields : &mNoFields;
    }

    IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc, TensorRTPhase phase) override
    {
        IPluginV2* made = phase == TensorRTPhase::kBUILD
            ? named("createPlugin", [&] { return mCreator->createPlugin(name, fc); })
            : deserialize(name, *fc);
        if (!made)
        {
            if (phase == TensorRTPhase::kRUNTIME)
            {
                throw std::invalid_argument("deserializePlugin returned null");
            }
            return nullptr;
        }
        std::unique_ptr<AdaptedV2Plugin> adapted{new AdaptedV2Plugin{*made, false}};
        auto const* const space = getPluginNamespace();
        named("setPluginNamespace", [&] { made->setPluginNamespace(space); });
        if (phase == TensorRTPhase::kRUNTIME)
        {
            adapted->ensureInitialized();
        }
        return adapted.release();
    }

private:
    IPluginV2* deserialize(AsciiChar const* name, PluginFieldCollection const& fc)
    {
        for (int32_t i = 0; i < fc.nbFields; ++i)
        {
            if (!std::strcmp(fc.fields[i].name, kSERIALIZED))
            {
                auto const& field = fc.fields[i];
                return named("deserializePlugin", [&] {
                    return mCreator->deserializePlugin(name, field.data, static_cast<size_t>(field.length));
                });
            }
        }
        throw std::invalid_argument("the plan has no field 'serialized_plugin_v2' for deserializePlugin");
    }

    IPluginCreator* mCreator;
    PluginFieldCollection mNoFields{};
};

} // namespace detail
} // namespace dovetail
