// Plugins that keep pointers to memory or objects which are gone, or memory of earlier runs: the name of a creator says
// which. Each multiplies its input by a gain.
#include <NvInfer.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace nvinfer1;

namespace
{

int64_t countOf(PluginTensorDesc const& desc)
{
    int64_t count = 1;
    for (int32_t i = 0; i < desc.dims.nbDims; ++i)
    {
        count *= desc.dims.d[i];
    }
    return count;
}

// The data of the field "gain", or null.
PluginField const* findGain(PluginFieldCollection const& fc)
{
    for (int32_t i = 0; i < fc.nbFields; ++i)
    {
        if (!std::strcmp(fc.fields[i].name, "gain"))
        {
            return &fc.fields[i];
        }
    }
    return nullptr;
}

// What a plugin keeps of the call that created it.
struct Kept
{
    float const* data{nullptr};
    PluginField const* field{nullptr};
    PluginFieldCollection const* collection{nullptr};
    PluginField copy{};
    char const* name{nullptr};
    char const* layer{nullptr};
    std::string_view text{};
};

PluginFieldCollection const* gCollection{nullptr};

class Stale : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime
{
public:
    Stale(std::string fault, float gain, Kept kept)
        : mFault{std::move(fault)}
        , mGain{gain}
        , mKept{kept}
    {
    }
    ~Stale() override
    {
        if (is("ReadsDataInDestructor") && mKept.data)
        {
            *mSink = *mKept.data;
        }
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

    IPluginV3* clone() override
    {
        float const gain = is("ReadsDataInClone") && mKept.data ? *mKept.data : mGain;
        auto* twin = new Stale{mFault, gain, mKept};
        twin->mConfigured = mConfigured;
        return twin;
    }

    char const* getPluginName() const override { return mFault.c_str(); }
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return ""; }
    int32_t getNbOutputs() const override { return 1; }
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        return inOut[pos].desc.format == TensorFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const* in, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        mConfigured = in;
        return 0;
    }
    size_t getWorkspaceSize(DynamicPluginTensorDesc const* in, int32_t, DynamicPluginTensorDesc const*,
        int32_t) const override
    {
        DynamicPluginTensorDesc const& desc = is("KeepsConfigured") && mConfigured ? *mConfigured : in[0];
        size_t count = 1;
        for (int32_t i = 0; i < desc.max.nbDims; ++i)
        {
            count *= static_cast<size_t>(desc.max.d[i]);
        }
        return usesWorkspace() ? count * sizeof(float) : 0;
    }
    char const* getMetadataString() override { return is("KeepsLayerName") ? mKept.layer : "stale"; }
    int32_t setTactic(int32_t) override { return 0; }

    int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const* out, int32_t) override
    {
        mInput = in;
        mOutput = out;
        mRunsOfShape = 0;
        return 0;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t) override
    {
        if (is("KeepsInputDescs"))
        {
            inputDesc = mInput;
        }
        if (is("KeepsOutputDescs"))
        {
            outputDesc = mOutput;
        }
        mRunDescs = mRunDescs ? mRunDescs : inputDesc;
        mAddresses = mAddresses ? mAddresses : inputs;
        int64_t const count = countOf(is("KeepsRunDescs") ? *mRunDescs : is("KeepsOutputDescs") ? *outputDesc : *inputDesc);
        auto const* x = static_cast<float const*>(is("KeepsAddresses") ? mAddresses[0] : inputs[0]);
        auto* y = static_cast<float*>(outputs[0]);
        float const gain = currentGain();
        auto* sums = usesWorkspace() ? static_cast<float*>(workspace) : y;
        if (mustClear())
        {
            std::memset(sums, 0, static_cast<size_t>(count) * sizeof(float));
        }
        ++mRuns;
        ++mRunsOfShape;
        for (int64_t i = 0; i < count; ++i)
        {
            sums[i] += gain * x[i];
        }
        if (sums != y)
        {
            std::memcpy(y, sums, static_cast<size_t>(count) * sizeof(float));
        }
        return 0;
    }

    IPluginV3* attachToContext(IPluginResourceContext*) override { return clone(); }

    PluginFieldCollection const* getFieldsToSerialize() override
    {
        bool const isStale = is("SerializesData") && mKept.data;
        bool const hasStaleName = is("KeepsFieldName") && mKept.name;
        mField = {hasStaleName ? mKept.name : "gain", isStale ? mKept.data : &mGain, PluginFieldType::kFLOAT32, 1};
        if (is("SerializesField") && mKept.copy.data)
        {
            mField = mKept.copy;
        }
        if (is("SerializesCollection") && mKept.collection)
        {
            return mKept.collection;
        }
        mFields = {1, &mField};
        return &mFields;
    }

private:
    bool is(char const* fault) const { return mFault == fault; }
    bool usesWorkspace() const { return mFault.rfind("Workspace", 0) == 0; }
    bool mustClear() const
    {
        if (is("WorkspaceOnce") || is("OutputOnce"))
        {
            return mRuns == 0;
        }
        if (is("WorkspaceOncePerShape") || is("OutputOncePerShape"))
        {
            return mRunsOfShape == 0;
        }
        return is("WorkspaceEverySecondRun") ? mRuns % 2 == 0 : true;
    }
    float currentGain() const
    {
        if ((is("KeepsData") || is("KeepsDataAtRuntime") || is("KeepsDataAtBuild")) && mKept.data)
        {
            return *mKept.data;
        }
        if (is("KeepsField") && mKept.field)
        {
            return *static_cast<float const*>(mKept.field->data);
        }
        if (is("KeepsFieldCopy") && mKept.copy.data)
        {
            return *static_cast<float const*>(mKept.copy.data);
        }
        if (is("KeepsCollection") && mKept.collection)
        {
            return *static_cast<float const*>(findGain(*mKept.collection)->data);
        }
        if (is("KeepsText") && !mKept.text.empty())
        {
            float gain;
            std::memcpy(&gain, mKept.text.data(), sizeof(gain));
            return gain;
        }
        return mGain;
    }

    std::string mFault;
    float mGain;
    Kept mKept;
    std::unique_ptr<float> mSink{new float};
    DynamicPluginTensorDesc const* mConfigured{nullptr};
    PluginTensorDesc const* mInput{nullptr};
    PluginTensorDesc const* mOutput{nullptr};
    PluginTensorDesc const* mRunDescs{nullptr};
    void const* const* mAddresses{nullptr};
    int64_t mRuns{0};
    int64_t mRunsOfShape{0};
    PluginField mField;
    PluginFieldCollection mFields;
};

// A plugin of parts: capabilities that know their plugin.
class Parts;

class PartCore : public IPluginV3OneCore
{
public:
    explicit PartCore(Parts* plugin)
        : mPlugin{plugin}
    {
    }
    char const* getPluginName() const override;
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return ""; }

    Parts* mPlugin;
};

class PartBuild : public IPluginV3OneBuild
{
public:
    explicit PartBuild(Parts* plugin)
        : mPlugin{plugin}
    {
    }
    int32_t getNbOutputs() const override;
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        return inOut[pos].desc.format == TensorFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        return 0;
    }

    Parts* mPlugin;
};

class PartRuntime : public IPluginV3OneRuntime
{
public:
    explicit PartRuntime(Parts* plugin)
        : mPlugin{plugin}
    {
    }
    int32_t setTactic(int32_t) override { return 0; }
    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) override { return 0; }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) override;
    IPluginV3* attachToContext(IPluginResourceContext*) override;
    PluginFieldCollection const* getFieldsToSerialize() override;

    Parts* mPlugin;
    PluginField mField;
    PluginFieldCollection mFields;
};

class Parts : public IPluginV3
{
public:
    Parts(std::string fault, float gain)
        : mFault{std::move(fault)}
        , mGain{new float{gain}}
        , mCore{std::make_shared<PartCore>(this)}
        , mBuild{std::make_shared<PartBuild>(this)}
        , mRuntime{std::make_shared<PartRuntime>(this)}
    {
    }
    ~Parts() override { delete mGain; }

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return mCore.get();
        case PluginCapabilityType::kBUILD: return mBuild.get();
        case PluginCapabilityType::kRUNTIME: return mRuntime.get();
        }
        return nullptr;
    }

    IPluginV3* clone() override { return copy(mFault != "PartsAttachedKnowTheOriginal"); }

    Parts* copy(bool isClone)
    {
        auto* twin = new Parts{mFault, *mGain};
        if (mFault == "PartsShareRuntime")
        {
            twin->mRuntime = mRuntime;
        }
        if (mFault == "PartsRuntimeKnowsTheOriginal" || (!isClone && mFault == "PartsAttachedKnowTheOriginal"))
        {
            twin->mRuntime->mPlugin = this;
        }
        if (mFault == "PartsCoreKnowsTheOriginal")
        {
            twin->mCore->mPlugin = this;
        }
        if (mFault == "PartsBuildKnowsTheOriginal")
        {
            twin->mBuild->mPlugin = this;
        }
        return twin;
    }

    std::string mFault;
    float* mGain;
    std::shared_ptr<PartCore> mCore;
    std::shared_ptr<PartBuild> mBuild;
    std::shared_ptr<PartRuntime> mRuntime;
};

char const* PartCore::getPluginName() const
{
    return mPlugin->mFault.c_str();
}

int32_t PartBuild::getNbOutputs() const
{
    return mPlugin->mFault.size() < 100 ? 1 : 2;
}

int32_t PartRuntime::enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
    void* const* outputs, void*, cudaStream_t)
{
    auto const* x = static_cast<float const*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    for (int64_t i = 0; i < countOf(inputDesc[0]); ++i)
    {
        y[i] = *mPlugin->mGain * x[i];
    }
    return 0;
}

IPluginV3* PartRuntime::attachToContext(IPluginResourceContext*)
{
    return mPlugin->copy(false);
}

PluginFieldCollection const* PartRuntime::getFieldsToSerialize()
{
    mField = {"gain", mPlugin->mGain, PluginFieldType::kFLOAT32, 1};
    mFields = {1, &mField};
    return &mFields;
}

class StaleCreator : public IPluginCreatorV3One
{
public:
    explicit StaleCreator(char const* fault)
        : mFault{fault}
    {
    }

    char const* getPluginName() const override { return mFault.c_str(); }
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return ""; }
    PluginFieldCollection const* getFieldNames() override { return &mFields; }
    IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fc, TensorRTPhase phase) override
    {
        auto const* field = findGain(*fc);
        auto const* data = field ? static_cast<float const*>(field->data) : nullptr;
        float gain = data ? *data : 2.0F;
        if (mFault.rfind("Parts", 0) == 0)
        {
            return new Parts{mFault, gain};
        }
        Kept kept;
        kept.data = data;
        kept.field = field;
        kept.collection = field ? fc : nullptr;
        kept.copy = field ? *field : PluginField{};
        kept.name = field ? field->name : nullptr;
        kept.layer = name;
        kept.text = data ? std::string_view{reinterpret_cast<char const*>(data), sizeof(float)} : std::string_view{};
        bool const isStored = phase == TensorRTPhase::kRUNTIME;
        if (mFault == (isStored ? "KeepsDataAtBuild" : "KeepsDataAtRuntime"))
        {
            kept = Kept{};
        }
        if (mFault == "KeepsLastCollection")
        {
            gain = gCollection && findGain(*gCollection) ? *static_cast<float const*>(findGain(*gCollection)->data) : gain;
            gCollection = fc;
        }
        return new Stale{mFault, gain, kept};
    }

private:
    std::string mFault;
    PluginField mField{"gain", nullptr, PluginFieldType::kFLOAT32, 1};
    PluginFieldCollection mFields{1, &mField};
};

char const* const kFAULTS[]{"None", "KeepsData", "KeepsDataAtBuild", "KeepsDataAtRuntime", "KeepsField", "KeepsFieldCopy",
    "KeepsCollection", "KeepsText", "KeepsFieldName", "KeepsLayerName", "KeepsLastCollection", "SerializesData",
    "SerializesField", "SerializesCollection", "ReadsDataInDestructor", "ReadsDataInClone", "KeepsConfigured",
    "KeepsInputDescs", "KeepsOutputDescs", "KeepsRunDescs", "KeepsAddresses", "WorkspaceAlways", "WorkspaceOnce",
    "WorkspaceOncePerShape", "WorkspaceEverySecondRun", "OutputOnce", "OutputOncePerShape", "PartsNone",
    "PartsShareRuntime", "PartsRuntimeKnowsTheOriginal", "PartsAttachedKnowTheOriginal", "PartsCoreKnowsTheOriginal",
    "PartsBuildKnowsTheOriginal"};

} // namespace

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static std::vector<std::unique_ptr<StaleCreator>> creators;
    static std::vector<IPluginCreatorInterface*> listed;
    for (char const* fault : kFAULTS)
    {
        if (listed.size() < sizeof(kFAULTS) / sizeof(kFAULTS[0]))
        {
            creators.push_back(std::make_unique<StaleCreator>(fault));
            listed.push_back(creators.back().get());
        }
    }
    nbCreators = static_cast<int32_t>(listed.size());
    return listed.data();
}
