// Runs a plan: ./run_plan model.plan [--host-code]
// Inputs are filled with numbers; a dimension that varies is 1. Prints each output, its first numbers and the time of a
// run.
#include <dovetail/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace
{

size_t countElements(dovetail::Shape const& shape)
{
    size_t count = 1;
    for (int64_t size : shape)
    {
        count *= static_cast<size_t>(size);
    }
    return count;
}

// Memory for an input, which the context reads in place and which therefore has to stay.
std::vector<std::byte> fillInput(dovetail::Context& context, dovetail::TensorInfo const& tensor)
{
    dovetail::Shape shape = tensor.shape;
    std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{1});
    size_t const count = countElements(shape);
    std::vector<std::byte> memory(count * static_cast<size_t>(tensor.elementBits) / 8);
    if (tensor.type == "float32")
    {
        auto* numbers = reinterpret_cast<float*>(memory.data());
        for (size_t i = 0; i < count; ++i)
        {
            numbers[i] = static_cast<float>(i % 7) - 3;
        }
    }
    context.setInput(tensor.name, memory.data(), memory.size(), shape);
    return memory;
}

void print(std::string const& name, dovetail::Tensor const& tensor)
{
    std::printf("%s: %s, %zu bytes", name.c_str(), tensor.type().c_str(), tensor.sizeBytes());
    if (tensor.type() == "float32")
    {
        auto const numbers = tensor.view<float const>();
        for (size_t i = 0; i < std::min<size_t>(numbers.size(), 4); ++i)
        {
            std::printf("%s %g", i == 0 ? ":" : ",", numbers[i]);
        }
    }
    std::printf("\n");
}

void runPlan(std::string const& path, bool hostCode)
{
    dovetail::Runtime runtime;
    dovetail::LoadOptions options;
    options.hostCode = hostCode;
    dovetail::Engine engine = runtime.load(path, options);
    dovetail::Context context = engine.createContext();
    std::map<std::string, std::vector<std::byte>> memory;
    for (auto const& tensor : engine.tensors())
    {
        if (tensor.isInput)
        {
            memory[tensor.name] = fillInput(context, tensor);
        }
    }
    context.run();
    auto const begin = std::chrono::steady_clock::now();
    context.run();
    std::chrono::duration<double, std::micro> const time = std::chrono::steady_clock::now() - begin;
    for (auto const& tensor : engine.tensors())
    {
        if (!tensor.isInput)
        {
            print(tensor.name, context.output(tensor.name));
        }
    }
    std::printf("%.1f us\n", time.count());
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 2)
    {
        std::fprintf(stderr, "usage: %s model.plan [--host-code]\n", argv[0]);
        return 1;
    }
    try
    {
        runPlan(argv[1], argc > 2 && std::string(argv[2]) == "--host-code");
        return 0;
    }
    catch (dovetail::Error const& error)
    {
        std::fprintf(stderr, "%s: %s\n", error.kind().c_str(), error.what());
        return 2;
    }
}
