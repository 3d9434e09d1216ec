/* The binary interface between a plugin library and Dovetail: one exported function, dovetail_plugin_abi, which returns
 * a table of functions. Objects are opaque handles. Every function returns 0, or 1 and a text from last_error; a status
 * that a plugin's callback returned goes to *status. No exception leaves the library.
 */
#ifndef DOVETAIL_ABI_H
#define DOVETAIL_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

#define DOVETAIL_ABI_VERSION 4

    /* Functions for the library; context identifies the registry that loaded it. */
    typedef struct dovetail_host
    {
        uint32_t version;
        uint32_t size;
        void (*log)(int64_t context, int32_t severity, char const* text);
        void* (*acquire_resource)(int64_t context, char const* key, void* resource);
        int32_t (*release_resource)(int64_t context, char const* key);
        /* Of the execution context that a token of context_create stands for. */
        void* (*allocate)(int64_t token, uint64_t size, uint64_t alignment, uint32_t flags);
        int32_t (*deallocate)(int64_t token, void* memory);
        int32_t (*report_error)(int64_t token, int32_t code, char const* text);
        /* True if the registry of the process has a creator, of Python or of a library. */
        int32_t (*has_creator)(char const* name, char const* version, char const* name_space, int32_t is_safe);
        /* True until the interpreter finalizes; after that no other function may be called. */
        int (*is_running)(void);
    } dovetail_host;

    typedef enum dovetail_scope
    {
        DOVETAIL_SCOPE_PROCESS = 0,   /* for the registry of the process */
        DOVETAIL_SCOPE_LOADER = 1,    /* for one registry of Dovetail's that loaded the library */
        DOVETAIL_SCOPE_DUPLICATE = 2, /* refused: the registry of the process has one of this name */
    } dovetail_scope;

    typedef struct dovetail_registration
    {
        void* creator;
        char const* name;
        char const* version;
        char const* name_space;
        int32_t is_safe;
        int32_t scope;
    } dovetail_registration;

    typedef void (*dovetail_registration_sink)(void* token, dovetail_registration const* entry);

    typedef struct dovetail_identity
    {
        char const* name;
        char const* version;
        char const* name_space;
    } dovetail_identity;

    typedef struct dovetail_dims
    {
        int32_t nb_dims;
        int64_t d[8];
    } dovetail_dims;

    typedef struct dovetail_tensor_desc
    {
        dovetail_dims dims;
        int32_t type;
        int32_t format;
        float scale;
    } dovetail_tensor_desc;

    typedef struct dovetail_dynamic_desc
    {
        dovetail_tensor_desc desc;
        dovetail_dims min;
        dovetail_dims max;
        dovetail_dims opt;
    } dovetail_dynamic_desc;

    /* One call of enqueue: what it is given, and the status that it returned. */
    typedef struct dovetail_run
    {
        void* runtime;
        dovetail_tensor_desc const* input_desc;
        dovetail_tensor_desc const* output_desc;
        int32_t nb_inputs;
        int32_t nb_outputs;
        void const* const* inputs;
        void* const* outputs;
        void* workspace;
        void* stream;
        int32_t status;
    } dovetail_run;

    /* A capability and the interface that it implements. */
    typedef struct dovetail_capability
    {
        void* object;
        char const* kind;
        int32_t major;
        int32_t minor;
    } dovetail_capability;

    typedef enum dovetail_expr_kind
    {
        DOVETAIL_EXPR_CONSTANT = 0, /* value */
        DOVETAIL_EXPR_LEAF = 1,     /* value: the index of an expression that Dovetail passed */
        DOVETAIL_EXPR_OPERATION = 2, /* operation, first, second */
        DOVETAIL_EXPR_SIZE_TENSOR = 3, /* operation: the output; first: the tuned value; second: the bound */
    } dovetail_expr_kind;

    typedef struct dovetail_expr
    {
        int32_t kind;
        int32_t operation;
        int32_t first;
        int32_t second;
        int64_t value;
    } dovetail_expr;

    /* Shapes as expressions: the rank of each tensor, and all dimensions one after the other. */
    typedef struct dovetail_shapes
    {
        int32_t count;
        int32_t const* ranks;
        int32_t const* dims; /* indices of expressions */
    } dovetail_shapes;

    typedef void (*dovetail_shapes_sink)(
        int64_t token, dovetail_expr const* exprs, int32_t nb_exprs, dovetail_shapes const* outputs);

    /* Combinations of types and formats, one tensor after the other. */
    typedef void (*dovetail_formats_sink)(
        int64_t token, int32_t const* types, int32_t const* formats, int32_t nb_tensors);

    typedef struct dovetail_plugin_table
    {
        uint32_t version;
        uint32_t size;
        uint32_t size_of_tensor_desc;
        uint32_t size_of_dynamic_desc;
        uint32_t size_of_field;
        uint32_t size_of_dims; /* in fields: 8 sizes of 64 bits, or of 32 */

        char const* (*last_error)(void);
        /* The method that threw it; null where the function that failed calls one method only. */
        char const* (*last_method)(void);
        int32_t (*attach)(dovetail_host const* host, int64_t context);
        /* The number of calls of the host that have not returned. */
        int32_t (*host_calls)(void);
        /* A number that changes when registrations change. */
        uint64_t (*registrations_version)(void);
        int32_t (*registrations)(dovetail_registration_sink sink, void* token);
        /* Fails with the first exception of a registration, once. */
        int32_t (*registration_problem)(void);
        /* Sets the scope of a registration; adds it where the creator was not registered. */
        int32_t (*set_scope)(void* creator, char const* name_space, int32_t is_safe, int32_t scope);
        int32_t (*remove_registrations)(void* creator, int32_t is_safe, int32_t* count);
        /* Between the two calls with 1 and 0, creators are registered for the registry that loads the library. */
        int32_t (*set_loading)(int32_t is_loading);
        /* Functions that the library exports, called through the library so that no exception leaves it. */
        int32_t (*call_set_logger_finder)(void* entry);
        int32_t (*call_initialise)(void* entry, int32_t* succeeded);
        int32_t (*call_get_creators)(void* entry, void* const** creators, int32_t* count);

        int32_t (*creator_interface)(void* creator, dovetail_capability* info);
        /* The creator under IPluginCreatorV3One: itself, or an adapter; null where it is of another interface. */
        int32_t (*creator_adapt)(void* creator, void** adapted);
        int32_t (*creator_identity)(void* creator, dovetail_identity* identity);
        int32_t (*creator_fields)(void* creator, void const** fields);
        int32_t (*creator_create)(
            void* creator, char const* name, void const* fields, int32_t phase, void** plugin);

        int32_t (*plugin_delete)(void* plugin);
        int32_t (*plugin_clone)(void* plugin, void** twin);
        int32_t (*plugin_capability)(void* plugin, int32_t type, dovetail_capability* capability);
        int32_t (*core_identity)(void* core, dovetail_identity* identity);

        int32_t (*build_num_outputs)(void* build, int32_t* count);
        /* The ranks are null where the build capability is not of version 3, which is that of quick plugins. */
        int32_t (*build_output_types)(void* build, int32_t* outputs, int32_t nb_outputs, int32_t const* inputs,
            int32_t const* ranks, int32_t nb_inputs, int32_t* status);
        int32_t (*build_output_shapes)(void* build, dovetail_expr const* exprs, int32_t nb_exprs,
            dovetail_shapes const* inputs, dovetail_shapes const* shape_inputs, int32_t nb_outputs,
            dovetail_shapes_sink sink, int64_t token, int32_t* status);
        int32_t (*build_supports)(void* build, int32_t pos, dovetail_dynamic_desc const* in_out, int32_t nb_inputs,
            int32_t nb_outputs, int32_t* accepted);
        /* Of version 3 only: all combinations at once. */
        int32_t (*build_combinations)(void* build, dovetail_dynamic_desc const* in_out, int32_t nb_inputs,
            int32_t nb_outputs, dovetail_formats_sink sink, int64_t token, int32_t* status);
        int32_t (*build_configure)(void* build, dovetail_dynamic_desc const* in, int32_t nb_inputs,
            dovetail_dynamic_desc const* out, int32_t nb_outputs, int32_t* status);
        int32_t (*build_workspace)(void* build, dovetail_dynamic_desc const* in, int32_t nb_inputs,
            dovetail_dynamic_desc const* out, int32_t nb_outputs, uint64_t* size);
        int32_t (*build_nb_tactics)(void* build, int32_t* count);
        int32_t (*build_tactics)(void* build, int32_t* tactics, int32_t count, int32_t* status);
        int32_t (*build_format_limit)(void* build, int32_t* limit);
        int32_t (*build_timing_cache_id)(void* build, char const** text);
        int32_t (*build_metadata)(void* build, char const** text);
        int32_t (*build_aliased_input)(void* build, int32_t output, int32_t* input);

        int32_t (*runtime_set_tactic)(void* runtime, int32_t tactic, int32_t* status);
        int32_t (*runtime_shape_change)(void* runtime, dovetail_tensor_desc const* in, int32_t nb_inputs,
            dovetail_tensor_desc const* out, int32_t nb_outputs, int32_t* status);
        int32_t (*runtime_enqueue)(dovetail_run* run);
        int32_t (*runtime_attach)(void* runtime, void* context, void** plugin);
        int32_t (*runtime_fields)(void* runtime, void const** fields);

        int32_t (*context_create)(int64_t token, void** context);
        int32_t (*context_delete)(void* context);
        int32_t (*resource_clone)(void* resource, void** twin);
        int32_t (*resource_release)(void* resource, int32_t* status);
        int32_t (*resource_delete)(void* resource);
    } dovetail_plugin_table;

#ifdef __cplusplus
}
#endif

#endif
