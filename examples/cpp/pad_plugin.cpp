// A custom layer in C++: each image of a batch is padded with a value, or cropped, to a size, on the CPU.
//
//   g++ -std=c++17 -O2 -fPIC -shared -I"$(dovetail include-dir)" pad_plugin.cpp -o libpad_plugin.so
//   dovetail check ./libpad_plugin.so:Pad
#include <NvInfer.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

using namespace nvinfer1;

namespace
{

struct PadParameters
{
    int32_t size{32};
    float value{0.0F};
};

class PadPlugin : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime
{
public:
    explicit PadPlugin(PadParameters const& parameters)
        : mParameters{parameters}
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

    IPluginV3* clone() noexcept override { return new PadPlugin{mParameters}; }

    char const* getPluginName() const noexcept override { return "Pad"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }

    int32_t getNbOutputs() const noexcept override { return 1; }

    int32_t getOutputDataTypes(
        DataType* outputTypes, int32_t, DataType const* inputTypes, int32_t nbInputs) const noexcept override
    {
        if (nbInputs != 1)
        {
            return 1;
        }
        outputTypes[0] = inputTypes[0];
        return 0;
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
        outputs[0].d[2] = exprBuilder.constant(mParameters.size);
        outputs[0].d[3] = exprBuilder.constant(mParameters.size);
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == PluginFormat::kLINEAR && inOut[pos].desc.type == DataType::kFLOAT;
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

    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }

    PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        mFields = {{"size", &mParameters.size, PluginFieldType::kINT32, 1},
            {"value", &mParameters.value, PluginFieldType::kFLOAT32, 1}};
        mCollection = {static_cast<int32_t>(mFields.size()), mFields.data()};
        return &mCollection;
    }

private:
    void padImage(float const* in, int64_t const* from, float* out, int64_t const* to) const noexcept
    {
        std::fill(out, out + to[2] * to[3], mParameters.value);
        for (int64_t row = 0; row < std::min(from[2], to[2]); ++row)
        {
            std::copy_n(in + row * from[3], std::min(from[3], to[3]), out + row * to[3]);
        }
    }

    PadParameters mParameters;
    std::vector<PluginField> mFields;
    PluginFieldCollection mCollection;
};

class PadCreator : public IPluginCreatorV3One
{
public:
    char const* getPluginName() const noexcept override { return "Pad"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mCollection; }

    IPluginV3* createPlugin(char const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept override
    {
        PadParameters parameters;
        for (int32_t i = 0; i < fc->nbFields; ++i)
        {
            PluginField const& field = fc->fields[i];
            if (!std::strcmp(field.name, "size") && field.type == PluginFieldType::kINT32 && field.length == 1)
            {
                parameters.size = *static_cast<int32_t const*>(field.data);
            }
            if (!std::strcmp(field.name, "value") && field.type == PluginFieldType::kFLOAT32 && field.length == 1)
            {
                parameters.value = *static_cast<float const*>(field.data);
            }
        }
        return parameters.size > 0 ? new PadPlugin{parameters} : nullptr;
    }

private:
    std::vector<PluginField> mFields{
        {"size", nullptr, PluginFieldType::kINT32, 1}, {"value", nullptr, PluginFieldType::kFLOAT32, 1}};
    PluginFieldCollection mCollection{static_cast<int32_t>(mFields.size()), mFields.data()};
};

} // namespace

REGISTER_TENSORRT_PLUGIN(PadCreator);
