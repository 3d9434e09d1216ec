// Plugins, a creator, a logger and a resource whose classes derive from a base with a virtual destructor, or are members
// of such a class. Methods are declared with METHOD: `noexcept`, as in sources for TensorRT, or nothing. The plugins
// double their input.
#include <NvInfer.h>
#include <NvInferPlugin.h>

#include <string>
#include <type_traits>

#ifndef METHOD
#define METHOD noexcept
#endif

using namespace nvinfer1;

namespace
{

int32_t numDestroyed = 0;

class Described
{
public:
    virtual ~Described() { ++numDestroyed; }
    virtual std::string describe() const = 0;
};

int32_t doubleInput(PluginTensorDesc const& desc, void const* const* inputs, void* const* outputs) noexcept
{
    int64_t size = 1;
    for (int32_t i = 0; i < desc.dims.nbDims; ++i)
    {
        size *= desc.dims.d[i];
    }
    for (int64_t i = 0; i < size; ++i)
    {
        static_cast<float*>(outputs[0])[i] = 2 * static_cast<float const*>(inputs[0])[i];
    }
    return 0;
}

bool isLinearFloat(PluginTensorDesc const& desc) noexcept
{
    return desc.type == DataType::kFLOAT && desc.format == TensorFormat::kLINEAR;
}

class V3Plugin : public IPluginV3,
                 public IPluginV3OneCore,
                 public IPluginV3OneBuild,
                 public IPluginV3OneRuntime,
                 public Described
{
public:
    std::string describe() const override { return "V3"; }
    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) METHOD override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }
    IPluginV3* clone() METHOD override { return new V3Plugin{*this}; }
    char const* getPluginName() const METHOD override { return "V3WithBase"; }
    char const* getPluginVersion() const METHOD override { return "1"; }
    char const* getPluginNamespace() const METHOD override { return ""; }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) METHOD override
    {
        return 0;
    }
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const METHOD override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) METHOD override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) METHOD override
    {
        return isLinearFloat(inOut[pos].desc);
    }
    int32_t getNbOutputs() const METHOD override { return 1; }
    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) METHOD override
    {
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) METHOD override
    {
        return doubleInput(inputDesc[0], inputs, outputs);
    }
    IPluginV3* attachToContext(IPluginResourceContext*) METHOD override { return clone(); }
    PluginFieldCollection const* getFieldsToSerialize() METHOD override { return &mFields; }

private:
    PluginFieldCollection mFields{};
};

class V2Plugin : public Described, public IPluginV2DynamicExt
{
public:
    std::string describe() const override { return "V2"; }
    char const* getPluginType() const METHOD override { return "V2WithBase"; }
    char const* getPluginVersion() const METHOD override { return "1"; }
    int32_t getNbOutputs() const METHOD override { return 1; }
    int32_t initialize() METHOD override { return 0; }
    void terminate() METHOD override {}
    size_t getSerializationSize() const METHOD override { return 0; }
    void serialize(void*) const METHOD override {}
    void destroy() METHOD override { delete this; }
    IPluginV2DynamicExt* clone() const METHOD override { return new V2Plugin{*this}; }
    void setPluginNamespace(char const* space) METHOD override { mSpace = space; }
    char const* getPluginNamespace() const METHOD override { return mSpace.c_str(); }
    DataType getOutputDataType(int32_t, DataType const* inputs, int32_t) const METHOD override { return inputs[0]; }
    void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator*) METHOD override {}
    void detachFromContext() METHOD override {}
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) METHOD override
    {
        return inputs[0];
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) METHOD override
    {
        return isLinearFloat(inOut[pos]);
    }
    void configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) METHOD override
    {
    }
    size_t getWorkspaceSize(
        PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const METHOD override
    {
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) METHOD override
    {
        return doubleInput(inputDesc[0], inputs, outputs);
    }

private:
    using IPluginV2Ext::configurePlugin;
    using IPluginV2::enqueue;
    using IPluginV2::getOutputDimensions;
    using IPluginV2::getWorkspaceSize;
    std::string mSpace;
};

class V3Creator : public Described, public IPluginCreatorV3One
{
public:
    std::string describe() const override { return "creator of V3"; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const*, TensorRTPhase) METHOD override
    {
        return new V3Plugin;
    }
    PluginFieldCollection const* getFieldNames() METHOD override { return &mFields; }
    char const* getPluginName() const METHOD override { return "V3WithBase"; }
    char const* getPluginVersion() const METHOD override { return "1"; }
    char const* getPluginNamespace() const METHOD override { return ""; }

private:
    PluginFieldCollection mFields{};
};

// A creator that only its registration macro can make.
class HiddenCreator : public V3Creator
{
    friend class nvinfer1::PluginRegistrar<HiddenCreator>;
    HiddenCreator() = default;
    ~HiddenCreator() override = default;
    char const* getPluginName() const METHOD override { return "Hidden"; }
};

// A plugin of IPluginV2Ext without the methods that version 10 gave a default.
class Unbatched : public IPluginV2Ext
{
    char const* getPluginType() const METHOD override { return "Unbatched"; }
    char const* getPluginVersion() const METHOD override { return "1"; }
    int32_t getNbOutputs() const METHOD override { return 1; }
    Dims getOutputDimensions(int32_t, Dims const* inputs, int32_t) METHOD override { return inputs[0]; }
    bool supportsFormat(DataType, PluginFormat) const METHOD override { return true; }
    int32_t initialize() METHOD override { return 0; }
    void terminate() METHOD override {}
    size_t getWorkspaceSize(int32_t) const METHOD override { return 0; }
    int32_t enqueue(int32_t, void const* const*, void* const*, void*, cudaStream_t) METHOD override { return 0; }
    size_t getSerializationSize() const METHOD override { return 0; }
    void serialize(void*) const METHOD override {}
    void destroy() METHOD override { delete this; }
    IPluginV2Ext* clone() const METHOD override { return new Unbatched{*this}; }
    void setPluginNamespace(char const*) METHOD override {}
    char const* getPluginNamespace() const METHOD override { return ""; }
    DataType getOutputDataType(int32_t, DataType const* inputs, int32_t) const METHOD override { return inputs[0]; }
    void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*, DataType const*, bool const*,
        bool const*, PluginFormat, int32_t) METHOD override
    {
    }

private:
    using IPluginV2::enqueue;
};

static_assert(!std::is_abstract<Unbatched>::value, "Unbatched");

class V2Creator : public IPluginCreator, public Described
{
public:
    std::string describe() const override { return "creator of V2"; }
    char const* getPluginName() const METHOD override { return "V2WithBase"; }
    char const* getPluginVersion() const METHOD override { return "1"; }
    PluginFieldCollection const* getFieldNames() METHOD override { return &mFields; }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const*) METHOD override { return new V2Plugin; }
    IPluginV2* deserializePlugin(char const*, void const*, size_t) METHOD override { return new V2Plugin; }
    void setPluginNamespace(char const*) METHOD override {}
    char const* getPluginNamespace() const METHOD override { return ""; }

private:
    PluginFieldCollection mFields{};
};

class Logger : public ILogger, public Described
{
public:
    std::string describe() const override { return "logger"; }
    void log(Severity, char const*) noexcept override {}
};

class Resource : public IPluginResource, public Described
{
public:
    std::string describe() const override { return "resource"; }
    int32_t release() METHOD override { return 0; }
    IPluginResource* clone() METHOD override { return new Resource{*this}; }
};

// Members of a class whose base has a virtual destructor.
class Members : public Described
{
public:
    std::string describe() const override { return "members"; }

private:
    V3Plugin mV3;
    V2Plugin mV2;
    V3Creator mV3Creator;
    V2Creator mV2Creator;
    Logger mLogger;
    Resource mResource;
};

template <typename T>
constexpr bool isReleasedWithoutException()
{
    return std::is_nothrow_destructible<T>::value && std::is_nothrow_copy_constructible<T>::value;
}

static_assert(isReleasedWithoutException<V3Plugin>(), "V3Plugin");
static_assert(std::is_nothrow_destructible<V2Plugin>::value, "V2Plugin");
static_assert(isReleasedWithoutException<V3Creator>(), "V3Creator");
static_assert(isReleasedWithoutException<V2Creator>(), "V2Creator");
static_assert(isReleasedWithoutException<Logger>(), "Logger");
static_assert(isReleasedWithoutException<Resource>(), "Resource");

REGISTER_TENSORRT_PLUGIN(V3Creator);
REGISTER_TENSORRT_PLUGIN(V2Creator);
REGISTER_TENSORRT_PLUGIN(HiddenCreator);

} // namespace

// Returns the number of bases that the destruction of the members destroys.
extern "C" TENSORRTAPI int32_t destroyMembers()
{
    Described* const members = new Members;
    int32_t const before = numDestroyed;
    delete members;
    return numDestroyed - before;
}
