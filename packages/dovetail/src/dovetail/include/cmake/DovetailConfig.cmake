# The headers of Dovetail as a target: find_package(Dovetail), then target_link_libraries(my_plugin Dovetail::headers).
# With COMPONENTS runtime there is Dovetail::runtime for programs that run plans, over the interpreter that
# Python3_EXECUTABLE names: the python of the environment that has Dovetail.
get_filename_component(_dovetail_include "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
if(NOT TARGET Dovetail::headers)
  add_library(Dovetail::headers INTERFACE IMPORTED)
  set_target_properties(Dovetail::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_dovetail_include}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
unset(_dovetail_include)

if("runtime" IN_LIST Dovetail_FIND_COMPONENTS AND NOT TARGET Dovetail::runtime)
  include(CMakeFindDependencyMacro)
  find_dependency(Python3 COMPONENTS Interpreter Development.Embed)
  find_dependency(Threads)
  add_library(Dovetail::runtime INTERFACE IMPORTED)
  set_target_properties(Dovetail::runtime PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "DOVETAIL_PYTHON=\"${Python3_EXECUTABLE}\""
    INTERFACE_LINK_LIBRARIES "Dovetail::headers;Python3::Python;Threads::Threads")
endif()
