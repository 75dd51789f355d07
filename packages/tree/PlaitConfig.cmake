# find_package(Plait) defines:
#
#   Plait::sqlite3          the shared library; a program that is built with it finds it where it is now
#   Plait::sqlite3_static   the static library
#
# SQLite inside is @SQLITE_VERSION@. The files are found from where this one is, so that the tree may be moved.

include(CMakeFindDependencyMacro)
find_dependency(Threads)

get_filename_component(_plait_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)

if(NOT TARGET Plait::sqlite3)
    add_library(Plait::sqlite3 SHARED IMPORTED)
    set_target_properties(Plait::sqlite3 PROPERTIES
        IMPORTED_LOCATION "${_plait_prefix}/lib/plait/libsqlite3.so.0"
        IMPORTED_SONAME "libsqlite3.so.0"
        INTERFACE_INCLUDE_DIRECTORIES "${_plait_prefix}/include/plait")
endif()

if(NOT TARGET Plait::sqlite3_static)
    add_library(Plait::sqlite3_static STATIC IMPORTED)
    set_target_properties(Plait::sqlite3_static PROPERTIES
        IMPORTED_LOCATION "${_plait_prefix}/lib/plait/libsqlite3.a"
        IMPORTED_LINK_INTERFACE_LANGUAGES "C"
        INTERFACE_INCLUDE_DIRECTORIES "${_plait_prefix}/include/plait"
        INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m;@UNWINDING@")
endif()

set(Plait_SQLITE_VERSION "@SQLITE_VERSION@")
unset(_plait_prefix)
