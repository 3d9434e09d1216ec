// A program that ends while threads run plans, in the way that its second argument names.
#include <dovetail/runtime.hpp>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using dovetail::Context;
using dovetail::Engine;
using dovetail::Runtime;

namespace
{

// Destroyed with the static objects of the program.
std::unique_ptr<Runtime> gRuntime;
std::unique_ptr<Engine> gEngine;

void runForever(Engine engine)
{
    Context context = engine.createContext();
    std::vector<float> const x(6, 1.0F);
    for (;;)
    {
        context.setInput("x", x, {2, 3});
        context.run();
    }
}

void startThreads(Engine const& engine)
{
    for (int i = 0; i < 3; ++i)
    {
        std::thread(runForever, engine).detach();
    }
}

void wait(char const* milliseconds)
{
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(milliseconds)));
}

} // namespace

int main(int, char** arguments)
{
    std::string const plan = arguments[1], end = arguments[2];
    if (end == "static")
    {
        gRuntime = std::make_unique<Runtime>();
        gEngine = std::make_unique<Engine>(gRuntime->load(plan));
        startThreads(*gEngine);
        wait(arguments[3]);
        return 0;
    }
    Runtime runtime;
    Engine engine = runtime.load(plan);
    startThreads(engine);
    wait(arguments[3]);
    if (end == "exit")
    {
        std::exit(0);
    }
    if (end == "thread")
    {
        std::thread([] { std::exit(0); }).join();
    }
    return 0;
}
