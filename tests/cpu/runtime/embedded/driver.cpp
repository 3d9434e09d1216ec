// Does what the first argument says with the plan that the second names, and prints what it saw; a failure of the
// library is printed as "kind | text".
#include <NvInfer.h> // both headers in one program
#include <dovetail/runtime.hpp>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace
{

using dovetail::Context;
using dovetail::Engine;
using dovetail::LoadOptions;
using dovetail::Memory;
using dovetail::Runtime;
using dovetail::Shape;
using dovetail::Span;
using dovetail::Tensor;
using Arguments = std::vector<std::string>;

std::string join(Shape const& shape)
{
    std::string text;
    for (int64_t size : shape)
    {
        text += (text.empty() ? "" : "x") + std::to_string(size);
    }
    return "[" + text + "]";
}

void show(Tensor const& tensor)
{
    std::printf("%s%s", tensor.type().c_str(), join(tensor.shape()).c_str());
    for (float value : tensor.view<float>())
    {
        std::printf(" %g", value);
    }
    std::printf("\n");
}

std::vector<float> count(size_t size, float first = 0)
{
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i)
    {
        values[i] = first + static_cast<float>(i);
    }
    return values;
}

template <typename F>
void tell(F&& act)
{
    try
    {
        act();
        std::printf("ok\n");
    }
    catch (dovetail::Error const& error)
    {
        std::printf("%s | %s\n", error.kind().c_str(), error.what());
    }
}

void runOnce(Engine const& engine)
{
    Context context = engine.createContext();
    std::vector<float> const x = count(6);
    context.setInput("x", x, {2, 3});
    context.run();
    show(context.output("y"));
}

void describe(Runtime& runtime, Arguments const& args)
{
    Engine engine = runtime.load(args[0]);
    std::printf("%s %d\n", engine.name().c_str(), engine.numProfiles());
    for (auto const& tensor : engine.tensors())
    {
        std::printf("%s %s %s %d %s %s '%s' '%s'\n", tensor.name.c_str(), tensor.isInput ? "in" : "out",
            tensor.type.c_str(), tensor.elementBits, tensor.format.c_str(),
            tensor.hasRank ? join(tensor.shape).c_str() : "?", tensor.memory.c_str(), tensor.sharesInput.c_str());
    }
}

// Shapes that change, memory of the program's for outputs, results that outlive everything.
void run(Runtime& runtime, Arguments const& args)
{
    std::optional<Tensor> kept;
    {
        Engine engine = runtime.load(args[0]);
        Context context = engine.createContext();
        std::vector<float> const three = count(3), six = count(6);
        context.setInput("x", three, {1, 3});
        std::printf("%s\n", join(context.shape("y")).c_str());
        context.run();
        kept.emplace(context.output("y"));
        context.setInput("x", six, {2, 3});
        context.run();
        show(context.output("y"));
        std::array<float, 6> own{};
        context.setOutput("y", Span<float>(own.data(), own.size()));
        context.run();
        Tensor view = context.output("y");
        std::printf("%d %d %g\n", view.isOwner(), view.data() == own.data(), own[5]);
        Context moved = std::move(context);
        own = {};
        moved.run();
        std::printf("%g\n", own[5]);
    }
    std::printf("%d ", kept->isOwner());
    show(*kept);
}

void fail(Runtime& runtime, Arguments const& args)
{
    Engine engine = runtime.load(args[0]);
    Context context = engine.createContext();
    std::vector<float> const x = count(6);
    std::vector<int64_t> const whole(6);
    std::array<float, 3> own{};
    tell([&] { runtime.load("no such file"); });
    tell([&] { context.run(); });
    tell([&] { context.output("y"); });
    tell([&] { context.setInput("z", x, {2, 3}); });
    tell([&] { context.setInput("x", x, {2, 4}); });
    tell([&] { context.setInput("x", x, {3, 2}); });
    tell([&] { context.setInput("x", whole, {2, 3}); });
    tell([&] { context.setInput("x", x.data(), 4, {2, 3}); });
    tell([&] { context.setInput("x", x, {-1, -6}); });
    tell(
        [&]
        {
            context.setInput("x", nullptr, 24, {2, 3});
            context.run();
        });
    tell([&] { context.setInput("x", x, {2, 3}); });
    tell([&] { context.run(); });
    tell([&] { context.setInput("x", static_cast<void const*>(x.data()), 24, {4, 3}); });
    tell([&] { context.run(); });
    tell([&] { context.setInput("x", x, {2, 3}); });
    tell(
        [&]
        {
            context.setOutput("y", Span<float>(own.data(), own.size()));
            context.run();
        });
    tell([&] { context.setProfile(7); });
    tell([&] { engine.profileShapes("x", 0); });
    tell(
        [&]
        {
            LoadOptions options;
            options.providerOptions["cpu"]["threads"] = "2";
            runtime.load(args[0], options);
        });
    tell(
        [&]
        {
            LoadOptions options;
            options.pluginLibraries = {"nothing.so"};
            runtime.load(args[0], options);
        });
    Context moved = std::move(context);
    tell([&] { context.run(); });
    tell([&] { context.setInput("x", x, {2, 3}); });
}

// Plans from memory: addresses and sizes that are wrong. The last page ends where the plan ends, so that reading behind
// it ends the process.
void memory(Runtime& runtime, Arguments const& args)
{
    std::ifstream file(args[0], std::ios::binary);
    std::vector<char> const plan{std::istreambuf_iterator<char>(file), {}};
    size_t const page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t const pages = (plan.size() + page - 1) / page * page;
    auto* const map
        = static_cast<char*>(mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(map + pages, page, PROT_NONE);
    char* const start = map + pages - plan.size();
    std::memcpy(start, plan.data(), plan.size());
    for (size_t size : {size_t{0}, size_t{1}, size_t{100}, plan.size(), SIZE_MAX})
    {
        tell([&] { runtime.load(nullptr, size); });
    }
    for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{100}, plan.size() - 1, plan.size() + 1,
             2 * plan.size() + page, size_t{1} << 40, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX})
    {
        tell([&] { runtime.load(start, size); });
    }
    tell([&] { runtime.load(start, plan.size()); });
    Engine const engine = runtime.load(start, plan.size());
    Engine moved = engine, other = std::move(moved);
    std::printf("%s %s\n", moved.name().c_str(), other.name().c_str());
    Context context = other.createContext();
    std::vector<float> const x = count(6);
    context.setInput("x", x, {2, 3});
    tell(
        [&]
        {
            context.setOutput("y", nullptr, 24);
            context.run();
        });
}

void profiles(Runtime& runtime, Arguments const& args)
{
    Engine engine = runtime.load(args[0]);
    Context context = engine.createContext();
    std::vector<float> const x = count(24);
    for (int32_t profile = 0; profile < engine.numProfiles(); ++profile)
    {
        auto const shapes = engine.profileShapes("x", profile);
        std::printf("%s %s %s\n", join(shapes.min).c_str(), join(shapes.opt).c_str(), join(shapes.max).c_str());
    }
    tell([&] { context.setInput("x", x, {8, 3}); });
    context.setProfile(1);
    context.setInput("x", x, {8, 3});
    context.run();
    std::printf("%s\n", join(context.output("y").shape()).c_str());
}

// A data-dependent output: only the run tells its shape.
void dynamic(Runtime& runtime, Arguments const& args)
{
    Engine engine = runtime.load(args[0]);
    Context context = engine.createContext();
    std::vector<float> const x{1, 0, 2, 0, 0, 3};
    context.setInput("x", x, {6});
    std::printf("%s\n", join(context.shape("y")).c_str());
    context.run();
    Tensor y = context.output("y");
    std::printf("%s %s", y.type().c_str(), join(y.shape()).c_str());
    for (int64_t value : y.view<int64_t>())
    {
        std::printf(" %d", static_cast<int>(value));
    }
    std::printf("\n");
    std::array<int64_t, 6> own{};
    context.setOutput("y", Span<int64_t>(own.data(), own.size()));
    context.run();
    std::printf("%s %d\n", join(context.output("y").shape()).c_str(), static_cast<int>(own[2]));
    std::array<int64_t, 2> small{};
    context.setOutput("y", Span<int64_t>(small.data(), small.size()));
    tell([&] { context.run(); });
}

// An output that is written in the memory of an input.
void alias(Runtime& runtime, Arguments const& args)
{
    Engine engine = runtime.load(args[0]);
    Context context = engine.createContext();
    std::vector<float> cache = count(4), other(4, 9);
    std::vector<float> const x{7, 7};
    context.setInput("cache", cache, {4});
    context.setInput("x", x, {2});
    context.run();
    context.run();
    Tensor grown = context.output("grown");
    std::printf(
        "%s %d %d\n", engine.output("grown").sharesInput.c_str(), grown.isOwner(), grown.data() == cache.data());
    show(grown);
    context.setInput("cache", other, {4});
    context.run();
    show(context.output("grown"));
    tell([&] { context.setOutput("grown", cache.data(), 16); });
}

// Threads with contexts of their own, over two plans, in threads that the interpreter does not know.
void threads(Runtime& runtime, Arguments const& args)
{
    Engine first = runtime.load(args[0]), second = runtime.load(args[1]);
    std::vector<std::thread> workers;
    std::vector<int> right(8);
    for (size_t worker = 0; worker < right.size(); ++worker)
    {
        workers.emplace_back(
            [&, worker]
            {
                Context context = (worker % 2 ? first : second).createContext();
                for (int round = 0; round < 50; ++round)
                {
                    size_t const rows = 1 + static_cast<size_t>(round) % 3;
                    std::vector<float> const x = count(rows * 3, static_cast<float>(worker));
                    context.setInput("x", x, {static_cast<int64_t>(rows), 3});
                    context.run();
                    Tensor y = context.output("y");
                    float const expected = worker % 2 ? x.back() : -x.back();
                    right[worker] += y.view<float>()[rows * 3 - 1] == expected;
                }
            });
    }
    for (std::thread& worker : workers)
    {
        worker.join();
    }
    for (int each : right)
    {
        std::printf("%d ", each);
    }
    std::printf("\n");
}

// A thread that ran a plan and ends after the interpreter, and one that ends the interpreter itself.
void outlive(Arguments const& args)
{
    std::promise<void> ran, ended;
    std::thread idle, last;
    {
        auto runtime = std::make_shared<Runtime>();
        Engine engine = runtime->load(args[0]);
        idle = std::thread(
            [&, later = ended.get_future().share()]
            {
                runOnce(engine);
                ran.set_value();
                later.wait();
            });
        ran.get_future().wait();
        last = std::thread([mine = std::move(runtime), engine] { runOnce(engine); });
    }
    last.join();
    ended.set_value();
    idle.join();
    std::printf("%d\n", Py_IsInitialized());
}

size_t readMemoryKb()
{
    std::ifstream file("/proc/self/statm");
    size_t total = 0, resident = 0;
    file >> total >> resident;
    return resident * 4;
}

// Loads, runs and unloads a plan, and prints by how much the memory grew in the second half.
void repeat(Runtime& runtime, Arguments const& args)
{
    size_t middle = 0;
    int const rounds = std::atoi(args[1].c_str());
    for (int round = 0; round < rounds; ++round)
    {
        middle = round == rounds / 2 ? readMemoryKb() : middle;
        Context context = runtime.load(args[0]).createContext();
        std::vector<float> const x = count(6);
        context.setInput("x", x, {2, 3});
        context.run();
        context.output("y");
        tell([&] { context.setInput("x", x, {1, 3}); });
    }
    std::printf("%d\n", static_cast<int>(readMemoryKb()) - static_cast<int>(middle));
}

// Loads the files that are named: damaged plans must be errors.
void hostile(Runtime& runtime, Arguments const& args)
{
    for (std::string const& path : args)
    {
        std::ifstream file(path, std::ios::binary);
        std::string const content((std::istreambuf_iterator<char>(file)), {});
        tell([&] { runtime.load(path); });
        tell([&] { runtime.load(content.data(), content.size()); });
    }
}

void carried(Runtime& runtime, Arguments const& args)
{
    tell([&] { runtime.load(args[0]); });
    LoadOptions options;
    options.hostCode = true;
    std::vector<std::string> messages;
    options.log = [&](dovetail::LogLevel level, std::string const& text)
    { messages.push_back(std::to_string(static_cast<int>(level)) + " " + text); };
    Engine engine = runtime.load(args[0], options);
    Context context = engine.createContext();
    std::vector<float> const x = count(6);
    context.setInput("x", x, {2, 3});
    context.run();
    show(context.output("y"));
    for (std::string const& message : messages)
    {
        std::printf("%s\n", message.c_str());
    }
}

void library(Runtime& runtime, Arguments const& args)
{
    LoadOptions options;
    options.pluginLibraries = {args[1]};
    options.log = [](dovetail::LogLevel, std::string const&) {};
    for (int round = 0; round < 20; ++round)
    {
        Context context = runtime.load(args[0], options).createContext();
        std::vector<float> const x = count(6);
        context.setInput("x", x, {2, 3});
        context.run();
        Tensor y = context.output("y");
        if (round == 19)
        {
            show(y);
        }
    }
}

// Memory of a device, whose addresses are of the host for the device of the tests, and a stream of it.
void device(Runtime& runtime, Arguments const& args)
{
    LoadOptions options;
    options.pluginLibraries = {args[1]};
    Engine engine = runtime.load(args[0], options);
    std::printf("%s %s\n", engine.input("x").memory.c_str(), engine.output("y").memory.c_str());
    Context context = engine.createContext();
    std::vector<float> x = count(6, -2);
    context.setInput("x", x, {2, 3});
    context.run();
    show(context.output("y"));
    auto readNumber
        = [](char const* name) { return reinterpret_cast<void*>(std::strtoull(std::getenv(name), nullptr, 0)); };
    std::array<float, 6> own{};
    context.setOutput("y", Span<float>(own.data(), own.size()));
    x[0] = 5;
    context.run(readNumber("DEVICE_STREAM"));
    std::printf("%g %g\n", own[0], own[5]);
    void* const input = readNumber("DEVICE_INPUT");
    void* const output = readNumber("DEVICE_OUTPUT");
    std::memcpy(input, x.data(), 24);
    context.setInput("x", input, 24, {2, 3}, Memory::kTENSOR);
    own = {};
    context.run(readNumber("DEVICE_STREAM"));
    std::printf("%g %g\n", own[0], own[5]);
    context.setOutput("y", output, 24, Memory::kTENSOR);
    context.run(readNumber("DEVICE_STREAM"));
    context.run();
    std::printf("%g %g\n", static_cast<float*>(output)[0], static_cast<float*>(output)[5]);
}

void restart(Arguments const& args)
{
    tell(
        [&]
        {
            Runtime first, second;
            second.load(args[0]);
        });
    tell([&] { Runtime third; });
}

} // namespace

int main(int argc, char** argv)
{
    std::map<std::string, std::function<void(Runtime&, Arguments const&)>> const acts{{"describe", describe},
        {"run", run}, {"fail", fail}, {"profiles", profiles}, {"dynamic", dynamic}, {"alias", alias},
        {"threads", threads}, {"repeat", repeat}, {"hostile", hostile}, {"carried", carried}, {"library", library},
        {"device", device}, {"memory", memory}};
    std::string const act = argv[1];
    Arguments const args(argv + 2, argv + argc);
    tell(
        [&]
        {
            if (act == "restart" || act == "outlive")
            {
                act == "restart" ? restart(args) : outlive(args);
            }
            else
            {
                Runtime runtime;
                acts.at(act)(runtime, args);
            }
        });
}
