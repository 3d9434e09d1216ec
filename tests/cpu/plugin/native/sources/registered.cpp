// A library that registers a creator in every way: PLUGIN names it, MACRO, SAFE_MACRO and LISTS choose the ways.
#include "example_plugin.h"

#include <NvInferPlugin.h>

#include <string>

using namespace nvinfer1;

#define AS_TEXT_OF(name) #name
#define AS_TEXT(name) AS_TEXT_OF(name)

namespace
{

class AddOnePlugin : public ExamplePlugin<AddOnePlugin>
{
public:
    static constexpr char const* kNAME = AS_TEXT(PLUGIN);
    static AddOnePlugin* create(PluginFieldCollection const&) { return new AddOnePlugin{}; }
    static std::vector<PluginField> fieldNames() { return {}; }
    std::vector<PluginField> fields() const { return {}; }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) noexcept override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }
    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        int64_t count = 1;
        for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i)
        {
            count *= inputDesc[0].dims.d[i];
        }
        for (int64_t i = 0; i < count; ++i)
        {
            static_cast<float*>(outputs[0])[i] = static_cast<float const*>(inputs[0])[i] + 1;
        }
        return 0;
    }
};

class AddOneCreator : public ExampleCreator<AddOnePlugin>
{
public:
#ifdef OWN_NAMESPACE
    char const* getPluginNamespace() const noexcept override { return AS_TEXT(OWN_NAMESPACE); }
#endif
};

AddOneCreator& creatorOfEntry()
{
    static AddOneCreator creator;
    return creator;
}

} // namespace

#ifdef MACRO
REGISTER_TENSORRT_PLUGIN(AddOneCreator);
#endif
#ifdef SAFE_MACRO
REGISTER_SAFE_TENSORRT_PLUGIN(AddOneCreator);
#endif

#ifdef LISTS
extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& count)
{
    static IPluginCreatorInterface* const creators[]{&creatorOfEntry()};
    count = 1;
    return creators;
}

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getPluginCreators(int32_t& count)
{
    return getCreators(count);
}
#endif

#ifdef INITIALISES
extern "C" TENSORRTAPI bool initLibNvInferPlugins(void*, char const* space)
{
    return getPluginRegistry()->registerCreator(creatorOfEntry(), space);
}
#endif

extern "C" TENSORRTAPI bool initMyPlugins(char const* space)
{
    return getPluginRegistry()->registerCreator(creatorOfEntry(), space);
}

extern "C" TENSORRTAPI bool endMyPlugins()
{
    return getPluginRegistry()->deregisterCreator(creatorOfEntry());
}

extern "C" TENSORRTAPI int32_t countCreators()
{
    int32_t count = -1;
    auto* const* const all = getPluginRegistry()->getAllCreators(&count);
    int32_t again = -1;
    return getPluginRegistry()->getAllCreators(&again) == all && again == count ? count : -1;
}

extern "C" TENSORRTAPI bool finds(char const* name, char const* space)
{
    auto* const creator = getPluginRegistry()->getCreator(name, "1", space);
    return creator && static_cast<IPluginCreatorV3One*>(creator)->getPluginName() == std::string(name);
}

extern "C" TENSORRTAPI bool deregister(char const* name, char const* space)
{
    auto* const creator = getPluginRegistry()->getCreator(name, "1", space);
    return creator && getPluginRegistry()->deregisterCreator(*creator);
}

// Whether a plugin of the registry can be made, and deleted.
extern "C" TENSORRTAPI bool creates(char const* name, char const* space)
{
    auto* const creator = getPluginRegistry()->getCreator(name, "1", space);
    PluginFieldCollection const fields{};
    auto* const plugin = creator
        ? static_cast<IPluginCreatorV3One*>(creator)->createPlugin("p", &fields, TensorRTPhase::kBUILD)
        : nullptr;
    delete plugin;
    return plugin != nullptr;
}
