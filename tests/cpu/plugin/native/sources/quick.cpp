// A plugin of the quick interface: the transposed input times a factor, for floats and integers.
#include <NvInferPythonPlugin.h>

#include <cstring>
#include <type_traits>

using namespace nvinfer1;

namespace
{

class Turned : public IPluginV3, public IPluginV3QuickCore, public IPluginV3QuickBuild, public IPluginV3QuickRuntime
{
public:
    explicit Turned(float factor)
        : mFactor{factor}
    {
    }

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3QuickCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3QuickBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3QuickRuntime*>(this);
        }
        return nullptr;
    }
    IPluginV3* clone() noexcept override { return new Turned{mFactor}; }
    char const* getPluginName() const noexcept override { return "Turned"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return "quick"; }

    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t getOutputDataTypes(DataType* outputTypes, int32_t, DataType const* inputTypes, int32_t const* inputRanks,
        int32_t nbInputs) const noexcept override
    {
        outputTypes[0] = inputTypes[0];
        return nbInputs == 1 && inputRanks[0] == 2 ? 0 : 1;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder&) noexcept override
    {
        outputs[0].nbDims = 2;
        outputs[0].d[0] = inputs[0].d[1];
        outputs[0].d[1] = inputs[0].d[0];
        return 0;
    }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t, int32_t) noexcept override
    {
        return 2;
    }
    int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t, int32_t,
        PluginTensorDesc* supportedCombinations, int32_t nbFormatCombinations) noexcept override
    {
        DataType const types[]{DataType::kFLOAT, DataType::kINT32};
        for (int32_t i = 0; i < 2 * nbFormatCombinations; ++i)
        {
            supportedCombinations[i].type = types[i / 2];
            supportedCombinations[i].format = TensorFormat::kLINEAR;
        }
        return 0;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
        void* const* outputs, Dims const* inputStrides, Dims const* outputStrides, int32_t nbInputs, int32_t nbOutputs,
        cudaStream_t) noexcept override
    {
        if (nbInputs != 1 || nbOutputs != 1)
        {
            return 1;
        }
        auto const turn = [&](auto const* x, auto* y) {
            using T = std::remove_reference_t<decltype(*y)>;
            auto const &from = inputStrides[0].d, &to = outputStrides[0].d;
            for (int64_t i = 0; i < inputDesc[0].dims.d[0]; ++i)
            {
                for (int64_t j = 0; j < inputDesc[0].dims.d[1]; ++j)
                {
                    y[j * to[0] + i * to[1]] = static_cast<T>(mFactor) * x[i * from[0] + j * from[1]];
                }
            }
            return 0;
        };
        return inputDesc[0].type == DataType::kFLOAT
            ? turn(static_cast<float const*>(inputs[0]), static_cast<float*>(outputs[0]))
            : turn(static_cast<int32_t const*>(inputs[0]), static_cast<int32_t*>(outputs[0]));
    }
    PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        mField = {"factor", &mFactor, PluginFieldType::kFLOAT32, 1};
        mFields = {1, &mField};
        return &mFields;
    }

private:
    float mFactor;
    PluginField mField;
    PluginFieldCollection mFields{};
};

class TurnedCreator : public IPluginCreatorV3Quick
{
public:
    IPluginV3* createPlugin(char const*, char const* nspace, PluginFieldCollection const* fc, TensorRTPhase,
        QuickPluginCreationRequest request) noexcept override
    {
        bool const isKnown = !std::strcmp(nspace, "quick") && request == QuickPluginCreationRequest::kPREFER_JIT;
        float const factor = fc->nbFields ? *static_cast<float const*>(fc->fields[0].data) : 3.0F;
        return isKnown ? new Turned{factor} : nullptr;
    }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    char const* getPluginName() const noexcept override { return "Turned"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return "quick"; }

private:
    PluginField mField{"factor", nullptr, PluginFieldType::kFLOAT32, 1};
    PluginFieldCollection mFields{1, &mField};
};

} // namespace

// The macro would register it in the default namespace, which is not that of its plugins.
extern "C" TENSORRTAPI IPluginCreatorInterface* const* getCreators(int32_t& count)
{
    static TurnedCreator creator;
    static IPluginCreatorInterface* const creators[]{&creator};
    count = 1;
    return creators;
}
