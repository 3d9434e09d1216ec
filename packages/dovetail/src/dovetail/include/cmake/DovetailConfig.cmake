# The headers of Dovetail as a target: find_package(Dovetail), then target_link_libraries(my_plugin Dovetail::headers).
get_filename_component(_dovetail_include "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
if(NOT TARGET Dovetail::headers)
  add_library(Dovetail::headers INTERFACE IMPORTED)
  set_target_properties(Dovetail::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_dovetail_include}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
unset(_dovetail_include)
