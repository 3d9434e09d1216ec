// What a library built against other headers looks like from outside.
extern "C" void* const* getCreators(int& count)
{
    count = 0;
    return nullptr;
}
