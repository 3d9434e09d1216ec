// A custom layer in C++: each image of a batch is padded with a value, or cropped, to a size, on the CPU.
//
//   g++ -std=c++17 -O2 -fPIC -shared -I"$(dovetail include-dir)" pad_plugin.cpp -o libpad_plugin.so
//   dovetail check ./libpad_plugin.so:Pad
#include "example_plugin.h"

#include <algorithm>

using namespace nvinfer1;

namespace
{

class PadPlugin : public ExamplePlugin<PadPlugin>
{
public:
    static constexpr char const* kNAME = "Pad";

    static PadPlugin* create(PluginFieldCollection const& fc)
    {
        PadPlugin made;
        readField(fc, "size", PluginFieldType::kINT32, made.mSize);
        readField(fc, "value", PluginFieldType::kFLOAT32, made.mValue);
        return made.mSize > 0 ? new PadPlugin{made} : nullptr;
    }

    static std::vector<PluginField> fieldNames()
    {
        return {{"size", nullptr, PluginFieldType::kINT32, 1}, {"value", nullptr, PluginFieldType::kFLOAT32, 1}};
    }

    std::vector<PluginField> fields() const
    {
        return {{"size", &mSize, PluginFieldType::kINT32, 1}, {"value", &mValue, PluginFieldType::kFLOAT32, 1}};
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t, IExprBuilder& exprBuilder) noexcept override
    {
        if (nbInputs != 1 || inputs[0].nbDims != 4)
        {
            return 1;
        }
        outputs[0].nbDims = 4;
        outputs[0].d[0] = inputs[0].d[0];
        outputs[0].d[1] = inputs[0].d[1];
        outputs[0].d[2] = exprBuilder.constant(mSize);
        outputs[0].d[3] = exprBuilder.constant(mSize);
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        auto const* in = static_cast<float const*>(inputs[0]);
        auto* out = static_cast<float*>(outputs[0]);
        auto const& from = inputDesc[0].dims.d;
        auto const& to = outputDesc[0].dims.d;
        for (int64_t image = 0; image < from[0] * from[1]; ++image)
        {
            padImage(in + image * from[2] * from[3], from, out + image * to[2] * to[3], to);
        }
        return 0;
    }

private:
    void padImage(float const* in, int64_t const* from, float* out, int64_t const* to) const noexcept
    {
        std::fill(out, out + to[2] * to[3], mValue);
        for (int64_t row = 0; row < std::min(from[2], to[2]); ++row)
        {
            std::copy_n(in + row * from[3], std::min(from[3], to[3]), out + row * to[3]);
        }
    }

    int32_t mSize{32};
    float mValue{0.0F};
};

using PadCreator = ExampleCreator<PadPlugin>;

} // namespace

REGISTER_TENSORRT_PLUGIN(PadCreator);
