// What a start costs in milliseconds and a run in microseconds, from C++: ./cpp_runtime PLAN
#include <dovetail/runtime.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

namespace
{

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin)
{
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The best of many rounds, in microseconds a call.
template <typename F>
double measure(F&& act)
{
    double best = 1e9;
    for (int round = 0; round < 30; ++round)
    {
        auto const begin = Clock::now();
        for (int i = 0; i < 1000; ++i)
        {
            act(i);
        }
        best = std::min(best, secondsSince(begin) * 1e3);
    }
    return best;
}

} // namespace

int main(int, char** argv)
{
    auto const begin = Clock::now();
    dovetail::Runtime runtime;
    dovetail::Context context = runtime.load(argv[1]).createContext();
    std::array<float, 96> const x{}, other{};
    std::array<float, 96> y{};
    dovetail::Shape const shape{1, 96};
    context.setInput("x", x, shape);
    context.run();
    double const start = secondsSince(begin) * 1e3;
    double const taken = measure(
        [&](int)
        {
            context.run();
            context.output("y");
        });
    double const changed = measure(
        [&](int i)
        {
            context.setInput("x", i % 2 ? x : other, shape);
            context.run();
            context.output("y");
        });
    context.setOutput("y", dovetail::Span<float>(y.data(), y.size()));
    double const bound = measure([&](int) { context.run(); });
    double thread = 0;
    std::thread([&] { thread = measure([&](int) { context.run(); }); }).join();
    std::printf(
        "{\"start_ms\": %.1f, \"bound_us\": %.2f, \"thread_us\": %.2f, \"taken_us\": %.2f, \"changed_us\": %.2f}\n",
        start, bound, thread, taken, changed);
}
