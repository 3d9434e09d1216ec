// The other plugin libraries of this process, found through the dynamic linker, whoever loaded them and in what order.
#pragma once

#include "abi.h"
#include "types.h"

#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <string>
#include <vector>

namespace dovetail
{
namespace detail
{

// The table of this library; see shim.h.
DOVETAIL_PRIVATE inline dovetail_plugin_table const* pluginTable() noexcept;

DOVETAIL_PRIVATE inline std::vector<std::string> listLoadedFiles()
{
    std::vector<std::string> files;
    auto const add = [](dl_phdr_info* info, size_t, void* list) noexcept {
        static_cast<std::vector<std::string>*>(list)->push_back(info->dlpi_name);
        return 0;
    };
    dl_iterate_phdr(add, &files);
    return files;
}

// True if objects of a library with this table can be used here.
inline bool isCompatible(dovetail_plugin_table const& other) noexcept
{
    dovetail_plugin_table const& own = *pluginTable();
    return other.version == own.version && other.size == own.size
        && other.size_of_tensor_desc == own.size_of_tensor_desc
        && other.size_of_dynamic_desc == own.size_of_dynamic_desc && other.size_of_field == own.size_of_field
        && other.size_of_dims == own.size_of_dims;
}

// Calls `visit` with the table of each other plugin library until it returns true. A library stays loaded during its
// visit. The table may be found twice, through a library and through one that is linked with it.
template <typename F>
bool visitLibraries(F&& visit)
{
    std::vector<dovetail_plugin_table const*> seen{pluginTable()};
    for (std::string const& file : listLoadedFiles())
    {
        void* const handle = dlopen(file.empty() ? nullptr : file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (!handle)
        {
            continue; // the kernel's own object, or a library that was closed meanwhile
        }
        auto const entry = reinterpret_cast<dovetail_plugin_table const* (*)()>(dlsym(handle, "dovetail_plugin_abi"));
        auto const* const table = entry ? entry() : nullptr;
        bool isDone = false;
        if (table && std::find(seen.begin(), seen.end(), table) == seen.end())
        {
            seen.push_back(table);
            isDone = isCompatible(*table) && visit(*table);
        }
        dlclose(handle);
        if (isDone)
        {
            return true;
        }
    }
    return false;
}

} // namespace detail
} // namespace dovetail
