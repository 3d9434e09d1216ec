// A plugin that stores the fields it is made from, of every type: what goes in comes out.
#include "example_plugin.h"

#include <string>

using namespace nvinfer1;

namespace
{

size_t bytesOf(PluginField const& field)
{
    auto const length = static_cast<size_t>(field.length);
    switch (field.type)
    {
    case PluginFieldType::kFLOAT64:
    case PluginFieldType::kINT64: return 8 * length;
    case PluginFieldType::kFLOAT32:
    case PluginFieldType::kINT32: return 4 * length;
    case PluginFieldType::kFLOAT16:
    case PluginFieldType::kBF16:
    case PluginFieldType::kINT16: return 2 * length;
    case PluginFieldType::kINT4:
    case PluginFieldType::kFP4: return (length + 1) / 2;
    case PluginFieldType::kDIMS: return sizeof(Dims) * length;
    default: return length;
    }
}

class EchoPlugin : public ExamplePlugin<EchoPlugin>
{
public:
    static constexpr char const* kNAME = "Echo";

    static EchoPlugin* create(PluginFieldCollection const& fc)
    {
        auto* made = new EchoPlugin{};
        for (int32_t i = 0; i < fc.nbFields; ++i)
        {
            auto const& field = fc.fields[i];
            made->mKept.push_back({field.name, field.type, field.length,
                std::string(static_cast<char const*>(field.data), bytesOf(field))});
        }
        return made;
    }
    static std::vector<PluginField> fieldNames() { return {}; }
    std::vector<PluginField> fields() const
    {
        std::vector<PluginField> all;
        for (auto const& kept : mKept)
        {
            all.emplace_back(kept.name.c_str(), kept.bytes.data(), kept.type, kept.length);
        }
        return all;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) noexcept override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    bool supportsFormatCombination(int32_t, DynamicPluginTensorDesc const*, int32_t, int32_t) noexcept override
    {
        return true;
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const*, void* const*, void*,
        cudaStream_t) noexcept override
    {
        return 0;
    }

private:
    struct Kept
    {
        std::string name;
        PluginFieldType type;
        int32_t length;
        std::string bytes;
    };
    std::vector<Kept> mKept;
};

using EchoCreator = ExampleCreator<EchoPlugin>;

} // namespace

REGISTER_TENSORRT_PLUGIN(EchoCreator);
