// The creators that this library registered.
#pragma once

#include "abi.h"
#include "plugin.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// Name, version and namespace; null counts as empty.
struct CreatorKey
{
    CreatorKey(char const* pluginName, char const* pluginVersion, char const* pluginNamespace)
        : name{pluginName ? pluginName : ""}
        , version{pluginVersion ? pluginVersion : ""}
        , space{pluginNamespace ? pluginNamespace : ""}
    {
    }

    bool operator==(CreatorKey const& other) const
    {
        return name == other.name && version == other.version && space == other.space;
    }

    std::string name;
    std::string version;
    std::string space;
};

struct Registration
{
    IPluginCreatorInterface* creator;
    CreatorKey key;
    int32_t scope;
};

class DOVETAIL_PRIVATE RegistrationList
{
public:
    // Adds a registration, or replaces that of the same creator under the same key.
    void put(Registration const& added)
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        auto const same = [&](Registration const& known) {
            return known.creator == added.creator && known.key == added.key;
        };
        auto const found = std::find_if(mEntries.begin(), mEntries.end(), same);
        if (found == mEntries.end())
        {
            mEntries.push_back(added);
            ++mVersion;
        }
        else if (found->scope != added.scope)
        {
            found->scope = added.scope;
            ++mVersion;
        }
    }

    // Removes all registrations of a creator; returns their number.
    int32_t remove(IPluginCreatorInterface const* creator) noexcept
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        auto const kept = std::remove_if(mEntries.begin(), mEntries.end(),
            [&](Registration const& known) { return known.creator == creator; });
        auto const removed = static_cast<int32_t>(mEntries.end() - kept);
        mEntries.erase(kept, mEntries.end());
        mVersion += removed ? 1 : 0;
        return removed;
    }

    // The creator with a key, except a duplicate of one in another library; null where there is none.
    IPluginCreatorInterface* find(CreatorKey const& key) const
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        auto const* const found = findEntry(key);
        return found ? found->creator : nullptr;
    }

    bool isScope(CreatorKey const& key, int32_t scope) const
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        auto const* const found = findEntry(key);
        return found && found->scope == scope;
    }

    // All creators but duplicates of those in other libraries.
    std::vector<IPluginCreatorInterface*> creators() const
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        std::vector<IPluginCreatorInterface*> listed;
        for (Registration const& entry : mEntries)
        {
            if (entry.scope != DOVETAIL_SCOPE_DUPLICATE)
            {
                listed.push_back(entry.creator);
            }
        }
        return listed;
    }

    std::vector<Registration> copy() const
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        return mEntries;
    }

    void clear() noexcept
    {
        std::lock_guard<std::mutex> const lock{mMutex};
        std::vector<Registration>{}.swap(mEntries);
        ++mVersion;
    }

    // A number that changes with every change of the list.
    uint64_t version() const noexcept { return mVersion; }

private:
    // The registration for the process before one for a loader; null where there is none.
    Registration const* findEntry(CreatorKey const& key) const
    {
        for (int32_t const scope : {DOVETAIL_SCOPE_PROCESS, DOVETAIL_SCOPE_LOADER})
        {
            auto const matches = [&](Registration const& known) { return known.scope == scope && known.key == key; };
            auto const found = std::find_if(mEntries.begin(), mEntries.end(), matches);
            if (found != mEntries.end())
            {
                return &*found;
            }
        }
        return nullptr;
    }

    mutable std::mutex mMutex;
    std::vector<Registration> mEntries;
    std::atomic<uint64_t> mVersion{0};
};

} // namespace detail
} // namespace dovetail
