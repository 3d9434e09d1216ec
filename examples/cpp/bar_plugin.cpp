// A custom layer in C++ whose output has a size that only the run tells.
//
// From X (N, C, H, W) and a shape input S of one value comes Y (S, 3, N, K): K is the number of positive elements in the
// first plane of X, and Y[s, c, n, k] is c + 1 times the element of the first plane of image n at the k-th such place.
// K is written to the second output, a size tensor.
#include "example_plugin.h"

#include <algorithm>

using namespace nvinfer1;

namespace
{

class BarPlugin : public ExamplePlugin<BarPlugin>
{
public:
    static constexpr char const* kNAME = "Bar";

    static BarPlugin* create(PluginFieldCollection const&) { return new BarPlugin{}; }
    static std::vector<PluginField> fieldNames() { return {}; }
    std::vector<PluginField> fields() const { return {}; }

    int32_t getNbOutputs() const noexcept override { return 2; }

    int32_t getOutputDataTypes(
        DataType* outputTypes, int32_t, DataType const* inputTypes, int32_t nbInputs) const noexcept override
    {
        if (nbInputs != 1)
        {
            return 1;
        }
        outputTypes[0] = inputTypes[0];
        outputTypes[1] = DataType::kINT32;
        return 0;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, DimsExprs* outputs, int32_t, IExprBuilder& exprBuilder) noexcept override
    {
        if (nbInputs != 1 || inputs[0].nbDims != 4 || nbShapeInputs != 1 || shapeInputs[0].nbDims != 1)
        {
            return 1;
        }
        auto const* upper = exprBuilder.operation(DimensionOperation::kPROD, *inputs[0].d[2], *inputs[0].d[3]);
        auto const* tuned = exprBuilder.operation(DimensionOperation::kFLOOR_DIV, *upper, *exprBuilder.constant(2));
        outputs[0].nbDims = 4;
        outputs[0].d[0] = shapeInputs[0].d[0];
        outputs[0].d[1] = exprBuilder.constant(3);
        outputs[0].d[2] = inputs[0].d[0];
        outputs[0].d[3] = exprBuilder.declareSizeTensor(1, *tuned, *upper);
        outputs[1].nbDims = 0;
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        auto const wanted = pos == 2 ? DataType::kINT32 : DataType::kFLOAT;
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == wanted;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        auto const* x = static_cast<float const*>(inputs[0]);
        auto* y = static_cast<float*>(outputs[0]);
        auto const& in = inputDesc[0].dims.d;
        int64_t const plane = in[2] * in[3], image = in[1] * plane;
        bool const isEmpty = in[0] * image == 0;
        auto const isPositive = [](float value) { return value > 0; };
        int64_t const count = isEmpty ? 0 : std::count_if(x, x + plane, isPositive);
        for (int64_t s = 0; s < outputDesc[0].dims.d[0]; ++s)
        {
            for (int64_t row = 0; row < 3 * in[0]; ++row)
            {
                float const factor = static_cast<float>(row / in[0] + 1);
                float const* from = x + row % in[0] * image;
                for (int64_t i = 0; i < (isEmpty ? 0 : plane); ++i)
                {
                    if (isPositive(x[i]))
                    {
                        *y++ = factor * from[i];
                    }
                }
            }
        }
        *static_cast<int32_t*>(outputs[1]) = static_cast<int32_t>(count);
        return 0;
    }
};

} // namespace

extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static ExampleCreator<BarPlugin> creator;
    static IPluginCreatorInterface* const creators[]{&creator};
    nbCreators = 1;
    return creators;
}
