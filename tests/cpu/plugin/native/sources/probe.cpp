// A plugin that copies its input and, as its field "mode" says, breaks one rule.
#include <NvInfer.h>
#include <NvInferPlugin.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

using namespace nvinfer1;

static std::atomic<int> gAlive{0};

class Probe : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuildV2, public IPluginV3OneRuntime
{
public:
    explicit Probe(std::string mode)
        : mMode{std::move(mode)}
    {
        ++gAlive;
    }
    ~Probe() override
    {
        if (mMemory && !mContext->getGpuAllocator()->deallocate(mMemory))
        {
            std::abort();
        }
        --gAlive;
    }

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        if (is("capability null") && type == PluginCapabilityType::kRUNTIME)
        {
            return nullptr;
        }
        if (is("capability wrong") && type == PluginCapabilityType::kRUNTIME)
        {
            return static_cast<IPluginV3OneCore*>(this);
        }
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuildV2*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    IPluginV3* clone() override
    {
        complain("clone throws");
        if (is("clone null"))
        {
            return nullptr;
        }
        auto* twin = new Probe{mMode};
        twin->mTactic = mTactic;
        return twin;
    }

    char const* getPluginName() const override { return "Probe"; }
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return is("namespace null") ? nullptr : ""; }
    int32_t getNbOutputs() const override { return 1; }

    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const override
    {
        if (!is("types unset"))
        {
            outputs[0] = inputs[0];
        }
        return is("types status") ? 11 : 0;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder& builder) override
    {
        complain("shapes throws");
        if (is("shapes unset"))
        {
            return 0;
        }
        outputs[0] = inputs[0];
        if (is("shapes null"))
        {
            outputs[0].d[1] = nullptr;
        }
        if (is("shapes doubled"))
        {
            auto const* doubled = builder.operation(DimensionOperation::kPROD, *inputs[0].d[0], *builder.constant(2));
            outputs[0].d[0] = builder.operation(DimensionOperation::kFLOOR_DIV, *doubled, *builder.constant(2));
        }
        return is("shapes status") ? 12 : 0;
    }

    bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        complain("supports throws");
        return inOut[pos].desc.format == TensorFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }

    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        complain("configure throws");
        return is("configure status") ? 13 : 0;
    }

    size_t getWorkspaceSize(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
        int32_t) const override
    {
        return is("workspace") ? 64 : 0;
    }

    int32_t getNbTactics() override { return is("tactics negative") ? -1 : is("tactics") ? 2 : 0; }
    int32_t getValidTactics(int32_t* tactics, int32_t nbTactics) override
    {
        for (int32_t i = 0; i < nbTactics; ++i)
        {
            tactics[i] = i + 1;
        }
        return 0;
    }
    char const* getMetadataString() override { return "a probe"; }

    int32_t setTactic(int32_t tactic) override
    {
        mTactic = tactic;
        return is("tactic status") ? 14 : 0;
    }

    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) override
    {
        return is("shape change status") ? 15 : 0;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t stream) override
    {
        complain("enqueue throws");
        if (is("enqueue throws a number"))
        {
            throw 3;
        }
        if (is("enqueue crashes"))
        {
            *static_cast<float volatile*>(nullptr) = 1;
        }
        if (is("enqueue throws past noexcept"))
        {
            [this]() noexcept { complain(mMode.c_str()); }();
        }
        if (is("allocates"))
        {
            if (!mMemory || reinterpret_cast<uintptr_t>(mMemory) % 64)
            {
                return 19;
            }
            std::memset(mMemory, 1, 256);
            mContext->getErrorRecorder()->reportError(ErrorCode::kINVALID_STATE, "the probe reports");
        }
        if (is("workspace") && !workspace)
        {
            return 16;
        }
        if (is("tactics") && mTactic != 1 && mTactic != 2)
        {
            return 17;
        }
        size_t count = 1;
        for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i)
        {
            count *= static_cast<size_t>(inputDesc[0].dims.d[i]);
        }
        cudaMemcpyAsync(outputs[0], inputs[0], count * sizeof(float), cudaMemcpyDeviceToDevice, stream);
        return is("enqueue status") ? 18 : 0;
    }

    IPluginV3* attachToContext(IPluginResourceContext* context) override
    {
        complain("attach throws");
        auto* twin = is("attach null") ? nullptr : static_cast<Probe*>(clone());
        if (twin && is("allocates"))
        {
            twin->mContext = context;
            twin->mMemory = context->getGpuAllocator()->allocate(256, 64, 0);
        }
        return twin;
    }

    PluginFieldCollection const* getFieldsToSerialize() override
    {
        mField = {"mode", mMode.data(), PluginFieldType::kCHAR, static_cast<int32_t>(mMode.size())};
        mFields = {1, &mField};
        return is("fields null") ? nullptr : &mFields;
    }

private:
    bool is(char const* mode) const { return mMode == mode; }
    void complain(char const* mode) const
    {
        if (is(mode))
        {
            throw std::runtime_error("the probe complains");
        }
    }

    std::string mMode;
    IPluginResourceContext* mContext{nullptr};
    void* mMemory{nullptr};
    int32_t mTactic{0};
    PluginField mField;
    PluginFieldCollection mFields;
};

class ProbeCreator : public IPluginCreatorV3One
{
public:
    char const* getPluginName() const override { return "Probe"; }
    char const* getPluginVersion() const override { return "1"; }
    char const* getPluginNamespace() const override { return ""; }
    PluginFieldCollection const* getFieldNames() override { return &mFields; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const* fc, TensorRTPhase) override
    {
        std::string mode;
        for (int32_t i = 0; i < fc->nbFields; ++i)
        {
            mode.assign(static_cast<char const*>(fc->fields[i].data), static_cast<size_t>(fc->fields[i].length));
        }
        if (mode == "create throws")
        {
            throw std::runtime_error("the creator complains");
        }
        getLogger()->log(ILogger::Severity::kWARNING, ("made " + mode).c_str());
        return mode == "create null" ? nullptr : new Probe{mode};
    }

private:
    PluginField mField{"mode", nullptr, PluginFieldType::kCHAR, 1};
    PluginFieldCollection mFields{1, &mField};
};

// What several plugins share: the number of clones that are alive.
class Shared : public IPluginResource
{
public:
    int32_t release() override { return 0; }
    IPluginResource* clone() override
    {
        auto* twin = new Shared;
        twin->mIsReady = true;
        return twin;
    }
    bool isReady() const { return mIsReady; }

private:
    bool mIsReady{false};
};

extern "C" TENSORRTAPI int32_t probesAlive()
{
    return gAlive;
}

// 0 where two users get one initialised object and both let it go.
extern "C" TENSORRTAPI int32_t shareTwice()
{
    Shared first, second;
    auto* a = static_cast<Shared*>(getPluginRegistry()->acquirePluginResource("shared", &first));
    auto* b = static_cast<Shared*>(getPluginRegistry()->acquirePluginResource("shared", &second));
    if (!a || a != b || a == &first || !a->isReady())
    {
        return 1;
    }
    getPluginRegistry()->releasePluginResource("shared");
    return getPluginRegistry()->releasePluginResource("shared");
}

extern "C" TENSORRTAPI bool acquireIsNull(char const* key)
{
    Shared mine;
    return getPluginRegistry()->acquirePluginResource(key, &mine) == nullptr;
}

extern "C" TENSORRTAPI int32_t releaseResource(char const* key)
{
    return getPluginRegistry()->releasePluginResource(key);
}

static ILoggerFinder* gFinder{nullptr};

extern "C" TENSORRTAPI void setLoggerFinder(ILoggerFinder* finder)
{
    gFinder = finder;
    finder->findLogger()->log(ILogger::Severity::kWARNING, "the finder is set");
}

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static ProbeCreator creator;
    static IPluginCreatorInterface* const creators[]{&creator};
    nbCreators = 1;
    return creators;
}
