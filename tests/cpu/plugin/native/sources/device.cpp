// Plugins of a library that needs a CUDA device. With MARKED the file has the section that nvcc writes for kernels;
// without it the library opens CUDA at run time, which the file does not show.
#include <NvInfer.h>

#include <cstring>
#include <dlfcn.h>
#include <string>

using namespace nvinfer1;

#ifdef MARKED
extern "C" __attribute__((section(".nvFatBinSegment"), used)) int const gFatBinary[4]{0x466243b1, 1, 0, 0};
#endif

namespace
{

// What a plugin writes on a machine without a device: nothing, or a part of its outputs.
enum class Writes
{
    kNOTHING,
    kFIRST_OUTPUT,
    kFIRST_ELEMENT,
    kALL,
};

class Launches : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime
{
public:
    Launches(char const* name, Writes writes)
        : mName{name}
        , mWrites{writes}
    {
    }
    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }
    IPluginV3* clone() noexcept override { return new Launches{mName, mWrites}; }
    char const* getPluginName() const noexcept override { return mName; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    int32_t getNbOutputs() const noexcept override { return 2; }
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs, int32_t) const noexcept override
    {
        outputs[0] = outputs[1] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) noexcept override
    {
        outputs[0] = outputs[1] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == TensorFormat::kLINEAR && inOut[pos].desc.type == inOut[0].desc.type;
    }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        void* const driver = dlopen("libcuda.so.1", RTLD_LAZY); // not checked, as in the plugins that this is about
        size_t bytes = inputDesc[0].type == DataType::kINT64 ? 8
            : inputDesc[0].type == DataType::kHALF          ? 2
            : inputDesc[0].type == DataType::kINT8          ? 1
                                                            : 4;
        size_t const element = bytes;
        for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i)
        {
            bytes *= static_cast<size_t>(inputDesc[0].dims.d[i]);
        }
        if (mWrites != Writes::kNOTHING && !driver)
        {
            std::memcpy(outputs[0], inputs[0], mWrites == Writes::kFIRST_ELEMENT ? element : bytes);
        }
        if (mWrites == Writes::kALL || mWrites == Writes::kFIRST_ELEMENT)
        {
            std::memcpy(outputs[1], inputs[0], bytes);
        }
        return 0;
    }
    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
    PluginFieldCollection const* getFieldsToSerialize() noexcept override { return &mFields; }

private:
    char const* mName;
    Writes mWrites;
    PluginFieldCollection mFields{};
};

class LaunchesCreator : public IPluginCreatorV3One
{
public:
    LaunchesCreator(char const* name, Writes writes)
        : mName{name}
        , mWrites{writes}
    {
    }
    char const* getPluginName() const noexcept override { return mName; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const*, TensorRTPhase) noexcept override
    {
        return new Launches{mName, mWrites};
    }

private:
    char const* mName;
    Writes mWrites;
    PluginFieldCollection mFields{};
};

} // namespace

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static LaunchesCreator nothing{"WritesNothing", Writes::kNOTHING};
    static LaunchesCreator first{"WritesFirstOutput", Writes::kFIRST_OUTPUT};
    static LaunchesCreator element{"WritesFirstElement", Writes::kFIRST_ELEMENT};
    static LaunchesCreator all{"WritesAll", Writes::kALL};
    static IPluginCreatorInterface* const creators[]{&nothing, &first, &element, &all};
    nbCreators = 4;
    return creators;
}
