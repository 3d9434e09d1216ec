// Plugins of every interface, whose methods throw where the environment variable DOVETAIL_TEST_FAULT names them, as
// "interface.method:kind". Correct plugins double their input.
#include <NvInferPlugin.h>
#include <NvInferPythonPlugin.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

using namespace nvinfer1;

namespace
{

struct Unusual
{
    int number;
};

class Silent : public std::exception
{
public:
    char const* what() const noexcept override { return nullptr; }
};

// Throws where the variable names this method. The text holds the method, so that a test finds it in the message.
void fault(char const* method)
{
    char const* const chosen = std::getenv("DOVETAIL_TEST_FAULT");
    char const* const end = chosen ? std::strchr(chosen, ':') : nullptr;
    if (!end || std::string(chosen, end) != method)
    {
        return;
    }
    std::string const kind = end + 1;
    if (kind == "null" || kind == "huge count")
    {
        return;
    }
    std::string const text = std::string("thrown by ") + method;
    if (kind == "runtime_error")
    {
        throw std::runtime_error(text);
    }
    if (kind == "string")
    {
        throw text;
    }
    if (kind == "literal")
    {
        throw "a literal that is thrown";
    }
    if (kind == "int")
    {
        throw 41;
    }
    if (kind == "bad_alloc")
    {
        throw std::bad_alloc();
    }
    if (kind == "silent")
    {
        throw Silent();
    }
    if (kind == "pointer")
    {
        static Unusual const unusual{1};
        throw &unusual;
    }
    throw Unusual{2};
}

// The value of a method that returns null where the fault "interface.method:null" is chosen.
template <typename T>
T orNull(char const* method, T value)
{
    char const* const chosen = std::getenv("DOVETAIL_TEST_FAULT");
    return chosen && std::string(chosen) == std::string(method) + ":null" ? nullptr : value;
}

int64_t volume(Dims const& dims)
{
    int64_t product = 1;
    for (int32_t i = 0; i < dims.nbDims; ++i)
    {
        product *= dims.d[i];
    }
    return product;
}

int32_t twice(int64_t count, void const* const* inputs, void* const* outputs)
{
    for (int64_t i = 0; i < count; ++i)
    {
        static_cast<float*>(outputs[0])[i] = 2 * static_cast<float const*>(inputs[0])[i];
    }
    return 0;
}

bool isPlain(PluginTensorDesc const& desc)
{
    return desc.format == TensorFormat::kLINEAR && desc.type == DataType::kFLOAT;
}

class Resource : public IPluginResource
{
public:
    explicit Resource(bool isClone)
        : mIsClone{isClone}
    {
    }
    ~Resource() override
    {
        if (mIsClone)
        {
            fault("IPluginResource.~");
        }
    }
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginResource.getInterfaceInfo");
        return IPluginResource::getInterfaceInfo();
    }
    int32_t release() override
    {
        fault("IPluginResource.release");
        return 0;
    }
    IPluginResource* clone() override
    {
        fault("IPluginResource.clone");
        return orNull("IPluginResource.clone", new Resource{true});
    }

private:
    bool mIsClone;
};

class Core : public IPluginV3OneCore
{
public:
    APILanguage getAPILanguage() const override
    {
        fault("IPluginV3OneCore.getAPILanguage");
        return APILanguage::kCPP;
    }
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3OneCore.getInterfaceInfo");
        return {orNull("IPluginV3OneCore.getInterfaceInfo", "PLUGIN_V3ONE_CORE"), 1, 0};
    }
    char const* getPluginName() const override
    {
        fault("IPluginV3OneCore.getPluginName");
        return orNull("IPluginV3OneCore.getPluginName", "V3");
    }
    char const* getPluginVersion() const override
    {
        fault("IPluginV3OneCore.getPluginVersion");
        return orNull("IPluginV3OneCore.getPluginVersion", "1");
    }
    char const* getPluginNamespace() const override
    {
        fault("IPluginV3OneCore.getPluginNamespace");
        return orNull("IPluginV3OneCore.getPluginNamespace", "");
    }
};

class Build : public IPluginV3OneBuildV2
{
public:
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3OneBuild.getInterfaceInfo");
        return {orNull("IPluginV3OneBuild.getInterfaceInfo", "PLUGIN_V3ONE_BUILD"), 2, 0};
    }
    int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        fault("IPluginV3OneBuild.configurePlugin");
        return 0;
    }
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const override
    {
        fault("IPluginV3OneBuild.getOutputDataTypes");
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) override
    {
        fault("IPluginV3OneBuild.getOutputShapes");
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        fault("IPluginV3OneBuild.supportsFormatCombination");
        return isPlain(inOut[pos].desc);
    }
    int32_t getNbOutputs() const override
    {
        fault("IPluginV3OneBuild.getNbOutputs");
        return 1;
    }
    size_t getWorkspaceSize(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) const override
    {
        fault("IPluginV3OneBuild.getWorkspaceSize");
        return 64;
    }
    int32_t getValidTactics(int32_t* tactics, int32_t count) override
    {
        fault("IPluginV3OneBuild.getValidTactics");
        for (int32_t i = 0; i < count; ++i)
        {
            tactics[i] = i + 1;
        }
        return 0;
    }
    int32_t getNbTactics() override
    {
        fault("IPluginV3OneBuild.getNbTactics");
        return 2;
    }
    char const* getTimingCacheID() override
    {
        fault("IPluginV3OneBuild.getTimingCacheID");
        return orNull("IPluginV3OneBuild.getTimingCacheID", "id");
    }
    int32_t getFormatCombinationLimit() override
    {
        fault("IPluginV3OneBuild.getFormatCombinationLimit");
        return 10;
    }
    char const* getMetadataString() override
    {
        fault("IPluginV3OneBuild.getMetadataString");
        return orNull("IPluginV3OneBuild.getMetadataString", "metadata");
    }
    int32_t getAliasedInput(int32_t) override
    {
        fault("IPluginV3OneBuildV2.getAliasedInput");
        return -1;
    }
};

class V3;

class Runtime : public IPluginV3OneRuntime
{
public:
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3OneRuntime.getInterfaceInfo");
        return {orNull("IPluginV3OneRuntime.getInterfaceInfo", "PLUGIN_V3ONE_RUNTIME"), 1, 0};
    }
    int32_t setTactic(int32_t) override
    {
        fault("IPluginV3OneRuntime.setTactic");
        return 0;
    }
    int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const*, int32_t) override
    {
        fault("IPluginV3OneRuntime.onShapeChange");
        mCount = volume(in[0].dims);
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
        void* workspace, cudaStream_t) override
    {
        fault("IPluginV3OneRuntime.enqueue");
        return workspace ? twice(mCount, inputs, outputs) : 1;
    }
    IPluginV3* attachToContext(IPluginResourceContext*) override;
    PluginFieldCollection const* getFieldsToSerialize() override
    {
        fault("IPluginV3OneRuntime.getFieldsToSerialize");
        return orNull("IPluginV3OneRuntime.getFieldsToSerialize", &mFields);
    }

private:
    int64_t mCount{0};
    PluginFieldCollection mFields{};
};

class V3 : public IPluginV3
{
public:
    ~V3() override { fault("IPluginV3.~"); }
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3.getInterfaceInfo");
        return {orNull("IPluginV3.getInterfaceInfo", "PLUGIN"), 1, 0};
    }
    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        fault("IPluginV3.getCapabilityInterface");
        auto* found = type == PluginCapabilityType::kCORE ? static_cast<IPluginCapability*>(&mCore)
            : type == PluginCapabilityType::kBUILD        ? static_cast<IPluginCapability*>(&mBuild)
                                                          : static_cast<IPluginCapability*>(&mRuntime);
        return orNull("IPluginV3.getCapabilityInterface", found);
    }
    IPluginV3* clone() override
    {
        fault("IPluginV3.clone");
        return orNull("IPluginV3.clone", new V3);
    }

private:
    Core mCore;
    Build mBuild;
    Runtime mRuntime;
};

IPluginV3* Runtime::attachToContext(IPluginResourceContext*)
{
    fault("IPluginV3OneRuntime.attachToContext");
    return orNull("IPluginV3OneRuntime.attachToContext", new V3);
}

class V3Creator : public IPluginCreatorV3One
{
public:
    APILanguage getAPILanguage() const override
    {
        fault("IPluginCreatorV3One.getAPILanguage");
        return APILanguage::kCPP;
    }
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginCreatorV3One.getInterfaceInfo");
        return {orNull("IPluginCreatorV3One.getInterfaceInfo", "PLUGIN CREATOR_V3ONE"), 1, 0};
    }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const*, TensorRTPhase) override
    {
        fault("IPluginCreatorV3One.createPlugin");
        return orNull("IPluginCreatorV3One.createPlugin", new V3);
    }
    PluginFieldCollection const* getFieldNames() override
    {
        fault("IPluginCreatorV3One.getFieldNames");
        return orNull("IPluginCreatorV3One.getFieldNames", &mFields);
    }
    char const* getPluginName() const override
    {
        fault("IPluginCreatorV3One.getPluginName");
        return orNull("IPluginCreatorV3One.getPluginName", "V3");
    }
    char const* getPluginVersion() const override
    {
        fault("IPluginCreatorV3One.getPluginVersion");
        return orNull("IPluginCreatorV3One.getPluginVersion", "1");
    }
    char const* getPluginNamespace() const override
    {
        fault("IPluginCreatorV3One.getPluginNamespace");
        return orNull("IPluginCreatorV3One.getPluginNamespace", "");
    }

private:
    PluginFieldCollection mFields{};
};

// The methods that the four interfaces of V2 share; KEY names the interface.
#define V2_METHODS(KEY, BASE)                                                                                          \
    ~V2##BASE() override { fault(KEY ".~"); }                                                                          \
    int32_t getTensorRTVersion() const override                                                                        \
    {                                                                                                                  \
        fault(KEY ".getTensorRTVersion");                                                                              \
        return BASE::getTensorRTVersion();                                                                             \
    }                                                                                                                  \
    char const* getPluginType() const override                                                                         \
    {                                                                                                                  \
        fault(KEY ".getPluginType");                                                                                   \
        return orNull(KEY ".getPluginType", #BASE);                                                                    \
    }                                                                                                                  \
    char const* getPluginVersion() const override                                                                      \
    {                                                                                                                  \
        fault(KEY ".getPluginVersion");                                                                                \
        return orNull(KEY ".getPluginVersion", "1");                                                                   \
    }                                                                                                                  \
    int32_t getNbOutputs() const override                                                                              \
    {                                                                                                                  \
        fault(KEY ".getNbOutputs");                                                                                    \
        return 1;                                                                                                      \
    }                                                                                                                  \
    int32_t initialize() override                                                                                      \
    {                                                                                                                  \
        fault(KEY ".initialize");                                                                                      \
        return 0;                                                                                                      \
    }                                                                                                                  \
    void terminate() override { fault(KEY ".terminate"); }                                                             \
    size_t getSerializationSize() const override                                                                       \
    {                                                                                                                  \
        fault(KEY ".getSerializationSize");                                                                            \
        return 1;                                                                                                      \
    }                                                                                                                  \
    void serialize(void* buffer) const override                                                                        \
    {                                                                                                                  \
        fault(KEY ".serialize");                                                                                       \
        *static_cast<char*>(buffer) = 1;                                                                               \
    }                                                                                                                  \
    void destroy() override                                                                                            \
    {                                                                                                                  \
        fault(KEY ".destroy");                                                                                         \
        delete this;                                                                                                   \
    }                                                                                                                  \
    BASE* clone() const override                                                                                       \
    {                                                                                                                  \
        fault(KEY ".clone");                                                                                           \
        return orNull(KEY ".clone", new V2##BASE{*this});                                                              \
    }                                                                                                                  \
    void setPluginNamespace(char const*) override { fault(KEY ".setPluginNamespace"); }                                \
    char const* getPluginNamespace() const override                                                                    \
    {                                                                                                                  \
        fault(KEY ".getPluginNamespace");                                                                              \
        return orNull(KEY ".getPluginNamespace", "");                                                                  \
    }

#define V2_BATCH_METHODS(KEY)                                                                                          \
    Dims getOutputDimensions(int32_t, Dims const* inputs, int32_t) override                                            \
    {                                                                                                                  \
        fault(KEY ".getOutputDimensions");                                                                             \
        return inputs[0];                                                                                              \
    }                                                                                                                  \
    size_t getWorkspaceSize(int32_t) const override                                                                    \
    {                                                                                                                  \
        fault(KEY ".getWorkspaceSize");                                                                                \
        return 64;                                                                                                     \
    }                                                                                                                  \
    int32_t enqueue(                                                                                                   \
        int32_t batch, void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t) override        \
    {                                                                                                                  \
        fault(KEY ".enqueue");                                                                                         \
        return workspace ? twice(3 * batch, inputs, outputs) : 1;                                                      \
    }

#define V2_EXT_METHODS(KEY)                                                                                            \
    DataType getOutputDataType(int32_t, DataType const* inputTypes, int32_t) const override                            \
    {                                                                                                                  \
        fault(KEY ".getOutputDataType");                                                                               \
        return inputTypes[0];                                                                                          \
    }                                                                                                                  \
    void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator*) override { fault(KEY ".attachToContext"); }    \
    void detachFromContext() override { fault(KEY ".detachFromContext"); }

#define V2_BROADCAST_METHODS(KEY)                                                                                      \
    bool isOutputBroadcastAcrossBatch(int32_t, bool const*, int32_t) const override                                    \
    {                                                                                                                  \
        fault(KEY ".isOutputBroadcastAcrossBatch");                                                                    \
        return false;                                                                                                  \
    }                                                                                                                  \
    bool canBroadcastInputAcrossBatch(int32_t) const override                                                          \
    {                                                                                                                  \
        fault(KEY ".canBroadcastInputAcrossBatch");                                                                    \
        return false;                                                                                                  \
    }

class V2IPluginV2 : public IPluginV2
{
public:
    V2IPluginV2() = default;
    V2IPluginV2(V2IPluginV2 const&) = default;
    V2_METHODS("IPluginV2", IPluginV2)
    V2_BATCH_METHODS("IPluginV2")
    bool supportsFormat(DataType type, PluginFormat format) const override
    {
        fault("IPluginV2.supportsFormat");
        return type == DataType::kFLOAT && format == PluginFormat::kLINEAR;
    }
    void configureWithFormat(
        Dims const*, int32_t, Dims const*, int32_t, DataType, PluginFormat, int32_t) override
    {
        fault("IPluginV2.configureWithFormat");
    }
};

class V2IPluginV2Ext : public IPluginV2Ext
{
public:
    V2IPluginV2Ext() = default;
    V2IPluginV2Ext(V2IPluginV2Ext const&) = default;
    V2_METHODS("IPluginV2Ext", IPluginV2Ext)
    V2_BATCH_METHODS("IPluginV2Ext")
    V2_EXT_METHODS("IPluginV2Ext")
    V2_BROADCAST_METHODS("IPluginV2Ext")
    bool supportsFormat(DataType type, PluginFormat format) const override
    {
        fault("IPluginV2Ext.supportsFormat");
        return type == DataType::kFLOAT && format == PluginFormat::kLINEAR;
    }
    void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*, DataType const*, bool const*,
        bool const*, PluginFormat, int32_t) override
    {
        fault("IPluginV2Ext.configurePlugin");
    }
};

class V2IPluginV2IOExt : public IPluginV2IOExt
{
public:
    V2IPluginV2IOExt() = default;
    V2IPluginV2IOExt(V2IPluginV2IOExt const&) = default;
    V2_METHODS("IPluginV2IOExt", IPluginV2IOExt)
    V2_BATCH_METHODS("IPluginV2IOExt")
    V2_EXT_METHODS("IPluginV2IOExt")
    V2_BROADCAST_METHODS("IPluginV2IOExt")
    void configurePlugin(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) override
    {
        fault("IPluginV2IOExt.configurePlugin");
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) const override
    {
        fault("IPluginV2IOExt.supportsFormatCombination");
        return isPlain(inOut[pos]);
    }
};

class V2IPluginV2DynamicExt : public IPluginV2DynamicExt
{
public:
    V2IPluginV2DynamicExt() = default;
    V2IPluginV2DynamicExt(V2IPluginV2DynamicExt const&) = default;
    V2_METHODS("IPluginV2DynamicExt", IPluginV2DynamicExt)
    V2_EXT_METHODS("IPluginV2DynamicExt")
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) override
    {
        fault("IPluginV2DynamicExt.getOutputDimensions");
        return inputs[0];
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) override
    {
        fault("IPluginV2DynamicExt.supportsFormatCombination");
        return isPlain(inOut[pos]);
    }
    void configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        fault("IPluginV2DynamicExt.configurePlugin");
    }
    size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const override
    {
        fault("IPluginV2DynamicExt.getWorkspaceSize");
        return 64;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void* workspace, cudaStream_t) override
    {
        fault("IPluginV2DynamicExt.enqueue");
        return workspace ? twice(volume(inputDesc[0].dims), inputs, outputs) : 1;
    }
};

template <typename Plugin>
class V2Creator : public IPluginCreator
{
public:
    explicit V2Creator(char const* name)
        : mName{name}
    {
    }
    InterfaceInfo getInterfaceInfo() const override
    {
        check("IPluginCreator.getInterfaceInfo");
        return {isChosen() ? orNull("IPluginCreator.getInterfaceInfo", "PLUGIN CREATOR_V1") : "PLUGIN CREATOR_V1", 1, 0};
    }
    int32_t getTensorRTVersion() const override
    {
        check("IPluginCreator.getTensorRTVersion");
        return NV_TENSORRT_VERSION;
    }
    char const* getPluginName() const override
    {
        check("IPluginCreator.getPluginName");
        return isChosen() ? orNull("IPluginCreator.getPluginName", mName) : mName;
    }
    char const* getPluginVersion() const override
    {
        check("IPluginCreator.getPluginVersion");
        return isChosen() ? orNull("IPluginCreator.getPluginVersion", "1") : "1";
    }
    PluginFieldCollection const* getFieldNames() override
    {
        check("IPluginCreator.getFieldNames");
        return isChosen() ? orNull("IPluginCreator.getFieldNames", &mFields) : &mFields;
    }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const*) override
    {
        check("IPluginCreator.createPlugin");
        return isChosen() ? orNull("IPluginCreator.createPlugin", new Plugin) : new Plugin;
    }
    IPluginV2* deserializePlugin(char const*, void const*, size_t) override
    {
        check("IPluginCreator.deserializePlugin");
        return isChosen() ? orNull("IPluginCreator.deserializePlugin", new Plugin) : new Plugin;
    }
    void setPluginNamespace(char const*) override { check("IPluginCreator.setPluginNamespace"); }
    char const* getPluginNamespace() const override
    {
        check("IPluginCreator.getPluginNamespace");
        return isChosen() ? orNull("IPluginCreator.getPluginNamespace", "") : "";
    }

private:
    // Faults of creators are those of one of the four.
    bool isChosen() const { return std::strcmp(mName, "IPluginV2DynamicExt") == 0; }
    void check(char const* method) const
    {
        if (isChosen())
        {
            fault(method);
        }
    }
    char const* mName;
    PluginFieldCollection mFields{};
};

class QuickCore : public IPluginV3QuickCore
{
public:
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3QuickCore.getInterfaceInfo");
        return {orNull("IPluginV3QuickCore.getInterfaceInfo", "PLUGIN_V3QUICK_CORE"), 1, 0};
    }
    char const* getPluginName() const override
    {
        fault("IPluginV3QuickCore.getPluginName");
        return orNull("IPluginV3QuickCore.getPluginName", "Quick");
    }
    char const* getPluginVersion() const override
    {
        fault("IPluginV3QuickCore.getPluginVersion");
        return orNull("IPluginV3QuickCore.getPluginVersion", "1");
    }
    char const* getPluginNamespace() const override
    {
        fault("IPluginV3QuickCore.getPluginNamespace");
        return orNull("IPluginV3QuickCore.getPluginNamespace", "quick");
    }
};

class QuickBuildPart : public IPluginV3QuickBuild
{
public:
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3QuickBuild.getInterfaceInfo");
        return {orNull("IPluginV3QuickBuild.getInterfaceInfo", "PLUGIN_V3QUICK_BUILD"), 1, 0};
    }
    int32_t getOutputDataTypes(
        DataType* outputs, int32_t, DataType const* inputs, int32_t const*, int32_t) const override
    {
        fault("IPluginV3QuickBuild.getOutputDataTypes");
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) override
    {
        fault("IPluginV3QuickBuild.getOutputShapes");
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) override
    {
        fault("IPluginV3QuickBuild.configurePlugin");
        return 0;
    }
    int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t, int32_t) override
    {
        fault("IPluginV3QuickBuild.getNbSupportedFormatCombinations");
        return 1;
    }
    int32_t getSupportedFormatCombinations(
        DynamicPluginTensorDesc const*, int32_t, int32_t, PluginTensorDesc* descs, int32_t) override
    {
        fault("IPluginV3QuickBuild.getSupportedFormatCombinations");
        descs[0].type = descs[1].type = DataType::kFLOAT;
        descs[0].format = descs[1].format = TensorFormat::kLINEAR;
        return 0;
    }
    int32_t getNbOutputs() const override
    {
        fault("IPluginV3QuickBuild.getNbOutputs");
        return 1;
    }
    int32_t getAliasedInput(int32_t) override
    {
        fault("IPluginV3QuickBuild.getAliasedInput");
        return -1;
    }
    int32_t getValidTactics(int32_t* tactics, int32_t count) override
    {
        fault("IPluginV3QuickBuild.getValidTactics");
        for (int32_t i = 0; i < count; ++i)
        {
            tactics[i] = i + 1;
        }
        return 0;
    }
    int32_t getNbTactics() override
    {
        fault("IPluginV3QuickBuild.getNbTactics");
        return 2;
    }
    char const* getTimingCacheID() override
    {
        fault("IPluginV3QuickBuild.getTimingCacheID");
        return orNull("IPluginV3QuickBuild.getTimingCacheID", "id");
    }
    char const* getMetadataString() override
    {
        fault("IPluginV3QuickBuild.getMetadataString");
        return orNull("IPluginV3QuickBuild.getMetadataString", "metadata");
    }
};

class QuickRuntime : public IPluginV3QuickRuntime
{
public:
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginV3QuickRuntime.getInterfaceInfo");
        return {orNull("IPluginV3QuickRuntime.getInterfaceInfo", "PLUGIN_V3QUICK_RUNTIME"), 1, 0};
    }
    int32_t setTactic(int32_t) override
    {
        fault("IPluginV3QuickRuntime.setTactic");
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, Dims const*, Dims const*, int32_t, int32_t, cudaStream_t) override
    {
        fault("IPluginV3QuickRuntime.enqueue");
        return twice(volume(inputDesc[0].dims), inputs, outputs);
    }
    PluginFieldCollection const* getFieldsToSerialize() override
    {
        fault("IPluginV3QuickRuntime.getFieldsToSerialize");
        return orNull("IPluginV3QuickRuntime.getFieldsToSerialize", &mFields);
    }

private:
    PluginFieldCollection mFields{};
};

class Quick : public IPluginV3
{
public:
    ~Quick() override { fault("Quick.~"); }
    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) override
    {
        fault("Quick.getCapabilityInterface");
        auto* found = type == PluginCapabilityType::kCORE ? static_cast<IPluginCapability*>(&mCore)
            : type == PluginCapabilityType::kBUILD        ? static_cast<IPluginCapability*>(&mBuild)
                                                          : static_cast<IPluginCapability*>(&mRuntime);
        return orNull("Quick.getCapabilityInterface", found);
    }
    IPluginV3* clone() override
    {
        fault("Quick.clone");
        return orNull("Quick.clone", new Quick);
    }

private:
    QuickCore mCore;
    QuickBuildPart mBuild;
    QuickRuntime mRuntime;
};

class QuickCreator : public IPluginCreatorV3Quick
{
public:
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("IPluginCreatorV3Quick.getInterfaceInfo");
        return {orNull("IPluginCreatorV3Quick.getInterfaceInfo", "PLUGIN CREATOR_V3QUICK"), 1, 0};
    }
    IPluginV3* createPlugin(char const*, char const*, PluginFieldCollection const*, TensorRTPhase,
        QuickPluginCreationRequest) override
    {
        fault("IPluginCreatorV3Quick.createPlugin");
        return orNull("IPluginCreatorV3Quick.createPlugin", new Quick);
    }
    PluginFieldCollection const* getFieldNames() override
    {
        fault("IPluginCreatorV3Quick.getFieldNames");
        return orNull("IPluginCreatorV3Quick.getFieldNames", &mFields);
    }
    char const* getPluginName() const override
    {
        fault("IPluginCreatorV3Quick.getPluginName");
        return orNull("IPluginCreatorV3Quick.getPluginName", "Quick");
    }
    char const* getPluginVersion() const override
    {
        fault("IPluginCreatorV3Quick.getPluginVersion");
        return orNull("IPluginCreatorV3Quick.getPluginVersion", "1");
    }
    char const* getPluginNamespace() const override
    {
        fault("IPluginCreatorV3Quick.getPluginNamespace");
        return orNull("IPluginCreatorV3Quick.getPluginNamespace", "quick");
    }

private:
    PluginFieldCollection mFields{};
};

#ifdef REGISTERS
// Registered while the system loads the library.
class RegisteredCreator : public V3Creator
{
public:
    RegisteredCreator() { fault("registered.constructor"); }
    InterfaceInfo getInterfaceInfo() const override
    {
        fault("registered.getInterfaceInfo");
        return {orNull("registered.getInterfaceInfo", "PLUGIN CREATOR_V3ONE"), 1, 0};
    }
    char const* getPluginName() const override
    {
        fault("registered.getPluginName");
        return orNull("registered.getPluginName", "Registered");
    }
    char const* getPluginVersion() const override
    {
        fault("registered.getPluginVersion");
        return orNull("registered.getPluginVersion", "1");
    }
    char const* getPluginNamespace() const override
    {
        fault("registered.getPluginNamespace");
        return orNull("registered.getPluginNamespace", "");
    }
};

class RegisteredOlder : public V2Creator<V2IPluginV2DynamicExt>
{
public:
    RegisteredOlder()
        : V2Creator{"RegisteredOlder"}
    {
    }
    void setPluginNamespace(char const*) override { fault("registered.setPluginNamespace"); }
};

REGISTER_TENSORRT_PLUGIN(RegisteredCreator);
REGISTER_TENSORRT_PLUGIN(RegisteredOlder);
#endif

} // namespace

extern "C" TENSORRTAPI void setLoggerFinder(ILoggerFinder*)
{
    fault("library.setLoggerFinder");
}

extern "C" TENSORRTAPI bool initLibNvInferPlugins(void*, char const*)
{
    fault("library.initLibNvInferPlugins");
    return true;
}

#ifdef OLD_ENTRY
extern "C" TENSORRTAPI IPluginCreatorInterface* const* getPluginCreators(int32_t& count)
{
    fault("library.getPluginCreators");
#else
extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& count)
{
    fault("library.getCreators");
#endif
    static V3Creator v3;
    static QuickCreator quick;
    static V2Creator<V2IPluginV2> oneType{"IPluginV2"};
    static V2Creator<V2IPluginV2Ext> ext{"IPluginV2Ext"};
    static V2Creator<V2IPluginV2IOExt> ioExt{"IPluginV2IOExt"};
    static V2Creator<V2IPluginV2DynamicExt> dynamic{"IPluginV2DynamicExt"};
    static IPluginCreatorInterface* const creators[]{&v3, &quick, &oneType, &ext, &ioExt, &dynamic};
    char const* const chosen = std::getenv("DOVETAIL_TEST_FAULT");
    bool const isHuge = chosen && std::strcmp(chosen, "library.getCreators:huge count") == 0;
    count = isHuge ? 2147483647 : 6;
    return orNull("library.getCreators", static_cast<IPluginCreatorInterface* const*>(creators));
}

// Takes a resource and gives it back: both go through the registry of the process.
extern "C" TENSORRTAPI bool useResource()
{
    Resource mine{false};
    auto* const found = getPluginRegistry()->acquirePluginResource("throws", &mine);
    return found && getPluginRegistry()->releasePluginResource("throws") == 0;
}
