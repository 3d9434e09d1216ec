// A plugin that is declared safe: it negates its input, allocates nothing in a run and keeps nothing.
#include "example_plugin.h"

using namespace nvinfer1;

namespace
{

class NegatePlugin : public ExamplePlugin<NegatePlugin>
{
public:
    static constexpr char const* kNAME = "Negate";
    static NegatePlugin* create(PluginFieldCollection const&) { return new NegatePlugin{}; }
    static std::vector<PluginField> fieldNames() { return {}; }
    std::vector<PluginField> fields() const { return {}; }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t, IExprBuilder&) noexcept override
    {
        outputs[0] = inputs[0];
        return nbInputs == 1 ? 0 : 1;
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
            static_cast<float*>(outputs[0])[i] = -static_cast<float const*>(inputs[0])[i];
        }
        return 0;
    }
};

using NegateCreator = ExampleCreator<NegatePlugin>;

} // namespace

REGISTER_SAFE_TENSORRT_PLUGIN(NegateCreator);
