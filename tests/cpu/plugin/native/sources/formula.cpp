// Computes its output dimension with a formula in postfix form over the dimensions of its input: "d0 2 o7" is d0 // 2.
#include <NvInfer.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

using namespace nvinfer1;

namespace
{

// Tokens: "d1" is dimension 1 of the input, "o4" is operation 4 on the two expressions before it, "-7" is a constant.
class Formula : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime
{
public:
    explicit Formula(std::string program)
        : mProgram{std::move(program)}
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
    IPluginV3* clone() noexcept override { return new Formula{mProgram}; }
    char const* getPluginName() const noexcept override { return "Formula"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const*, int32_t) const noexcept override
    {
        outputs[0] = DataType::kFLOAT;
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs, int32_t,
        IExprBuilder& builder) noexcept override
    {
        std::vector<IDimensionExpr const*> stack;
        std::istringstream tokens{mProgram};
        for (std::string token; tokens >> token;)
        {
            int64_t const number = std::strtoll(token.c_str() + (token[0] == 'd' || token[0] == 'o'), nullptr, 10);
            if (token[0] == 'o')
            {
                auto const* second = stack.back();
                stack.pop_back();
                stack.back() = builder.operation(static_cast<DimensionOperation>(number), *stack.back(), *second);
            }
            else
            {
                stack.push_back(token[0] == 'd' ? inputs[0].d[number] : builder.constant(number));
            }
        }
        outputs[0].nbDims = 1;
        outputs[0].d[0] = stack.back();
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        return inOut[pos].desc.format == TensorFormat::kLINEAR;
    }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const* out, int32_t) noexcept override
    {
        mCount = out[0].dims.d[0];
        return 0;
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const*, void* const* outputs, void*,
        cudaStream_t) noexcept override
    {
        for (int64_t i = 0; i < mCount; ++i)
        {
            static_cast<float*>(outputs[0])[i] = static_cast<float>(i);
        }
        return 0;
    }
    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
    PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        mStored = {{"program", mProgram.c_str(), PluginFieldType::kCHAR, static_cast<int32_t>(mProgram.size())}};
        mFields = {1, mStored.data()};
        return &mFields;
    }

private:
    std::string mProgram;
    int64_t mCount{0};
    std::vector<PluginField> mStored;
    PluginFieldCollection mFields;
};

class FormulaCreator : public IPluginCreatorV3One
{
public:
    char const* getPluginName() const noexcept override { return "Formula"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    char const* getPluginNamespace() const noexcept override { return ""; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
    IPluginV3* createPlugin(char const*, PluginFieldCollection const* fc, TensorRTPhase) noexcept override
    {
        PluginField const& field = fc->fields[0];
        return new Formula{std::string(static_cast<char const*>(field.data), static_cast<size_t>(field.length))};
    }

private:
    PluginField mField{"program", nullptr, PluginFieldType::kCHAR, 0};
    PluginFieldCollection mFields{1, &mField};
};

} // namespace

REGISTER_TENSORRT_PLUGIN(FormulaCreator);
