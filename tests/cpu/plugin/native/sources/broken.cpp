// Plugins that double their input, each of which breaks one rule: the name of a creator says which.
#include <NvInfer.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace nvinfer1;

namespace
{

int32_t gCalls{0};
float gGain{0};
std::vector<std::unique_ptr<char[]>> gLeaked;

class Broken : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuildV2, public IPluginV3OneRuntime
{
public:
    Broken(std::string fault, float gain, float const* memory = nullptr)
        : mFault{std::move(fault)}
        , mGain{gain}
        , mMemory{memory}
    {
        gGain = gain;
    }

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD:
            return is("NoBuildCapability") ? nullptr : static_cast<IPluginV3OneBuildV2*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    IPluginV3* clone() override
    {
        auto* twin = new Broken{mFault, is("CloneForgetsFields") ? 1.0F : mGain, mMemory};
        twin->mTactic = is("CloneForgetsTactic") ? 0 : mTactic;
        return twin;
    }

    char const* getPluginName() const override { return is("OtherName") ? "Another" : mFault.c_str(); }
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return ""; }
    int32_t getNbOutputs() const override { return is("NoOutputs") ? 0 : is("ManyOutputs") ? 1000000000 : 1; }

    int32_t getOutputDataTypes(DataType* outputs, int32_t nbOutputs, DataType const* inputs, int32_t) const override
    {
        if (nbOutputs)
        {
            bool const isOther = is("TypesChange") ? ++gCalls % 2 : is("DeclaresOtherType");
            outputs[0] = isOther ? DataType::kHALF : inputs[0];
        }
        if (is("TypesPastEnd"))
        {
            outputs[20] = inputs[0];
        }
        return 0;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t nbOutputs, IExprBuilder& builder) override
    {
        if (nbInputs != 1 || inputs[0].nbDims != 2)
        {
            return 1;
        }
        if (nbOutputs)
        {
            outputs[0] = inputs[0];
        }
        if (is("ShapesPastEnd"))
        {
            outputs[2] = inputs[0];
        }
        if (is("NegativeSize"))
        {
            outputs[0].d[0] = builder.constant(-5);
        }
        if (is("ShapesChange") && ++gCalls % 2)
        {
            outputs[0].d[0] = builder.constant(2);
        }
        return is("ShapesStatus") ? 7 : 0;
    }

    bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        if (is("FormatsNone") || (is("FormatsChange") && ++gCalls % 3 == 0))
        {
            return false;
        }
        return inOut[pos].desc.format == TensorFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }

    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        if (is("ConfigureThrows"))
        {
            throw std::runtime_error("no configuration today");
        }
        return is("ConfigureStatus") ? 3 : 0;
    }

    size_t getWorkspaceSize(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
        int32_t) const override
    {
        return is("WorkspaceChanges") ? static_cast<size_t>(++gCalls) * 16 : is("WorkspaceOverrun") ? 16 : is("HugeWorkspace") ? SIZE_MAX : 0;
    }

    int32_t getNbTactics() override { return usesTactics() ? 2 : 0; }
    int32_t getValidTactics(int32_t* tactics, int32_t count) override
    {
        for (int32_t i = 0; i < count; ++i)
        {
            tactics[i] = is("TacticsTwice") ? 1 : i + 1;
        }
        return 0;
    }
    char const* getTimingCacheID() override
    {
        mCacheId = std::to_string(++gCalls);
        return is("CacheIdChanges") ? mCacheId.c_str() : nullptr;
    }
    int32_t getAliasedInput(int32_t) override { return is("AliasOutOfRange") ? 5 : -1; }

    int32_t setTactic(int32_t tactic) override
    {
        mTactic = tactic;
        return 0;
    }

    int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const*, int32_t) override
    {
        if (!is("KeepsFirstShape") || mCount < 0)
        {
            mCount = in[0].dims.d[0] * in[0].dims.d[1];
        }
        return 0;
    }

    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
        void* workspace, cudaStream_t) override
    {
        auto const* x = static_cast<float const*>(inputs[0]);
        auto* y = static_cast<float*>(outputs[0]);
        float const gain = is("KeepsFieldMemory") && mMemory ? *mMemory : is("SharesGain") ? gGain : mGain;
        float const more = is("CountsRuns") ? static_cast<float>(mRuns++)
            : is("TacticsDiffer")           ? static_cast<float>(mTactic)
            : is("UsesFreed")               ? readFreed()
            : is("ReadsUnset")              ? readUnset()
                                            : 0.0F;
        bool const addsUp = is("AddsToOutput");
        for (int64_t i = 0; i < mCount; ++i)
        {
            y[i] = gain * x[i] + more + (addsUp ? y[i] : 0.0F);
        }
        return misbehave(const_cast<float*>(x), y, workspace);
    }

    IPluginV3* attachToContext(IPluginResourceContext*) override
    {
        if (is("AttachReturnsItself"))
        {
            return this;
        }
        auto* twin = static_cast<Broken*>(clone());
        twin->mGain = is("AttachForgetsFields") ? 1.0F : mGain;
        twin->mTactic = is("AttachForgetsTactic") ? 0 : mTactic;
        return twin;
    }

    PluginFieldCollection const* getFieldsToSerialize() override
    {
        mStored = is("FieldsChange") ? static_cast<float>(++gCalls) : mGain;
        mField = {"gain", &mStored, PluginFieldType::kFLOAT32, is("FieldsBroken") ? -1 : 1};
        mFields = {1, &mField};
        return &mFields;
    }

private:
    bool is(char const* fault) const { return mFault == fault; }
    bool usesTactics() const
    {
        return is("TacticsTwice") || is("TacticsDiffer") || is("CloneForgetsTactic") || is("AttachForgetsTactic");
    }

    // Through a pointer that the compiler knows nothing about.
    static float readFreed()
    {
        float* volatile kept = new float[4096]{};
        delete[] kept;
        return kept[2000];
    }
    static float readUnset()
    {
        float* volatile made = new float[4096];
        float const value = made[2000];
        delete[] made;
        return value;
    }

    int32_t misbehave(float* x, float* y, void* workspace)
    {
        if (is("EnqueueThrows"))
        {
            complain();
        }
        if (is("WritesInput") && mCount)
        {
            x[0] += 1;
        }
        if (is("WritesPastOutput"))
        {
            y[mCount] = 1;
        }
        if (is("WorkspaceOverrun"))
        {
            std::memset(workspace, 1, 64);
        }
        if (is("Leaks"))
        {
            gLeaked.push_back(std::make_unique<char[]>(1 << 20));
            std::memset(gLeaked.back().get(), 1, 1 << 20);
        }
        if (is("WritesLater"))
        {
            std::thread{[y] {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                *static_cast<float volatile*>(y) = -1;
            }}.detach();
        }
        crash();
        return is("EnqueueStatus") || (usesTactics() && mTactic == 0) ? 18 : 0;
    }

    void complain() const { throw std::runtime_error("no run today"); }

    void crash() const
    {
        if (is("ReadsNull"))
        {
            *static_cast<float volatile*>(nullptr) = 1;
        }
        if (is("Aborts"))
        {
            std::abort();
        }
        if (is("Exits"))
        {
            std::_Exit(3);
        }
        if (is("ThrowsPastNoexcept"))
        {
            [this]() noexcept { complain(); }();
        }
        while (is("Hangs"))
        {
            std::this_thread::sleep_for(std::chrono::seconds(1));
        }
    }

    std::string mFault;
    float mGain;
    float const* mMemory;
    std::string mCacheId;
    int32_t mTactic{0};
    int32_t mRuns{0};
    int64_t mCount{-1};
    float mStored{0};
    PluginField mField;
    PluginFieldCollection mFields;
};

class BrokenCreator : public IPluginCreatorV3One
{
public:
    explicit BrokenCreator(char const* fault)
        : mFault{fault}
        , mFields{{"gain", nullptr, PluginFieldType::kFLOAT32, 1}}
    {
        if (mFault == "FieldTwice")
        {
            mFields.push_back(mFields[0]);
        }
        mCollection = {static_cast<int32_t>(mFields.size()), mFields.data()};
    }

    char const* getPluginName() const override { return mFault.c_str(); }
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return ""; }
    PluginFieldCollection const* getFieldNames() override { return &mCollection; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const* fc, TensorRTPhase phase) override
    {
        if (mFault == "CreateThrows")
        {
            throw std::runtime_error("no plugin today");
        }
        bool const isStored = phase == TensorRTPhase::kRUNTIME;
        if (isStored && mFault == "RuntimeRefuses")
        {
            return nullptr;
        }
        if (mFault == "OneObject")
        {
            static auto* const one = new Broken{mFault, 2.0F};
            return one;
        }
        auto const* given = fc->nbFields ? static_cast<float const*>(fc->fields[0].data) : nullptr;
        float const gain = given && !(isStored && mFault == "RuntimeForgets") ? *given : 2.0F;
        return new Broken{mFault, gain, given};
    }

private:
    std::string mFault;
    std::vector<PluginField> mFields;
    PluginFieldCollection mCollection;
};

char const* const kFAULTS[]{"NoBuildCapability", "OtherName", "FieldTwice", "NoOutputs", "TypesChange", "NegativeSize",
    "ShapesChange", "ShapesStatus", "FormatsChange", "FormatsNone", "DeclaresOtherType", "AliasOutOfRange",
    "ConfigureThrows", "ConfigureStatus", "TacticsTwice", "WorkspaceChanges", "CacheIdChanges", "CloneForgetsFields",
    "CloneForgetsTactic", "AttachReturnsItself", "AttachForgetsFields", "AttachForgetsTactic", "FieldsBroken",
    "FieldsChange", "RuntimeRefuses", "RuntimeForgets", "KeepsFieldMemory", "EnqueueThrows", "EnqueueStatus",
    "WritesInput", "WritesPastOutput", "WorkspaceOverrun", "AddsToOutput", "CountsRuns", "KeepsFirstShape",
    "TacticsDiffer", "Leaks", "SharesGain", "WritesLater", "ReadsNull", "Aborts", "Exits", "ThrowsPastNoexcept", "Hangs",
    "CreateThrows", "ManyOutputs", "TypesPastEnd", "ShapesPastEnd", "HugeWorkspace", "OneObject", "UsesFreed", "ReadsUnset",
    "None"};

} // namespace

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static std::vector<std::unique_ptr<BrokenCreator>> creators;
    static std::vector<IPluginCreatorInterface*> listed;
    for (char const* fault : kFAULTS)
    {
        if (listed.size() < sizeof(kFAULTS) / sizeof(kFAULTS[0]))
        {
            creators.push_back(std::make_unique<BrokenCreator>(fault));
            listed.push_back(creators.back().get());
        }
    }
    nbCreators = static_cast<int32_t>(listed.size());
    return listed.data();
}
