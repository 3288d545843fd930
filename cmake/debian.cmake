# SPDX-License-Identifier: Apache-2.0
# Debian packages, by `cpack -G DEB` in a build folder: `shardmesh` (the command line), `libshardmesh-c1` (the C library),
# and `libshardmesh-c-dev` (its headers and pkg-config file). They use Debian's folders, so they have install rules of
# their own, which `cmake --install` leaves out. The C++ modules are in no package: a consumer compiles them from a prefix.
set(packages)
set(multiarch lib)
if(CMAKE_LIBRARY_ARCHITECTURE)
  set(multiarch lib/${CMAKE_LIBRARY_ARCHITECTURE})
endif()

# shardmesh_debian_package(<component> NAME <package> SECTION <section> SUMMARY <line> TEXT <text> [DEPENDS <packages>]
#                          [RECOMMENDS <packages>])
function(shardmesh_debian_package component)
  cmake_parse_arguments(PARSE_ARGV 1 package "" "NAME;SECTION;SUMMARY;TEXT;DEPENDS;RECOMMENDS" "")
  install(
    FILES ${PROJECT_SOURCE_DIR}/cmake/debian/copyright
    DESTINATION share/doc/${package_NAME}
    COMPONENT ${component}
    EXCLUDE_FROM_ALL
  )
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package_NAME} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${package_SECTION} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${package_DEPENDS}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS "${package_RECOMMENDS}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${package_SUMMARY}\n${package_TEXT}" PARENT_SCOPE)
  list(APPEND packages ${component})
  set(packages ${packages} PARENT_SCOPE)
endfunction()

# dpkg-shlibdeps does not see a library that is loaded with the first URL.
set(curl_package)
if(TARGET shardmesh_remote AND SHARDMESH_CURL_LIBRARY)
  set(curl_package "libcurl4 | libcurl3-gnutls")
endif()
if(TARGET shardmesh_tool)
  install(TARGETS shardmesh_tool RUNTIME DESTINATION bin COMPONENT debian_tool EXCLUDE_FROM_ALL)
  set(written ${PROJECT_BINARY_DIR}/tools/shardmesh/self_description)
  find_program(SHARDMESH_GZIP gzip)
  if(TARGET shardmesh_self_description AND SHARDMESH_GZIP)
    set(manual ${PROJECT_BINARY_DIR}/debian/shardmesh.1.gz)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/debian)
    add_custom_command(
      OUTPUT ${manual}
      COMMAND ${SHARDMESH_GZIP} -9nc ${written}/shardmesh.1 > ${manual}
      DEPENDS shardmesh_self_description ${written}/shardmesh.1
      VERBATIM
    )
    add_custom_target(shardmesh_debian_manual ALL DEPENDS ${manual})
    set(to COMPONENT debian_tool EXCLUDE_FROM_ALL)
    install(FILES ${manual} DESTINATION share/man/man1 ${to})
    install(FILES ${written}/shardmesh DESTINATION share/bash-completion/completions ${to})
    install(FILES ${written}/_shardmesh DESTINATION share/zsh/vendor-completions ${to})
    install(FILES ${written}/shardmesh.fish DESTINATION share/fish/vendor_completions.d ${to})
  endif()
  shardmesh_debian_package(
    debian_tool
    NAME shardmesh
    SECTION science
    SUMMARY "sharded checkpoints of PyTorch: inspect, verify, convert, reshard"
    TEXT
      "The command line of shardmesh. It reads and writes torch.distributed.checkpoint folders, .pt files,
safetensors, and Hugging Face folders, without Python."
    RECOMMENDS "${curl_package}"
  )
endif()

if(TARGET shardmesh_c)
  get_target_property(c_version shardmesh_c SOVERSION)
  install(
    TARGETS shardmesh_c
    LIBRARY DESTINATION ${multiarch} COMPONENT debian_library EXCLUDE_FROM_ALL NAMELINK_COMPONENT debian_development
    FILE_SET HEADERS DESTINATION include COMPONENT debian_development EXCLUDE_FROM_ALL
  )
  shardmesh_c_pkg_config(FOLDER ${PROJECT_BINARY_DIR}/debian LIBDIR ${multiarch} INCLUDEDIR include SYSTEM)
  install(
    FILES ${PROJECT_BINARY_DIR}/debian/shardmesh_c.pc
    DESTINATION ${multiarch}/pkgconfig
    COMPONENT debian_development
    EXCLUDE_FROM_ALL
  )
  shardmesh_debian_package(
    debian_library
    NAME libshardmesh-c${c_version}
    SECTION libs
    SUMMARY "sharded checkpoints of PyTorch: the C library"
    TEXT
      "Opens, loads, maps, saves, converts, reshards, verifies, and compares checkpoints, and computes layouts
and plans."
    RECOMMENDS "${curl_package}"
  )
  shardmesh_debian_package(
    debian_development
    NAME libshardmesh-c-dev
    SECTION libdevel
    SUMMARY "sharded checkpoints of PyTorch: headers of the C library"
    TEXT "Headers for C11 and C++17, and shardmesh_c.pc for pkg-config."
    DEPENDS "libshardmesh-c${c_version} (= ${PROJECT_VERSION})"
  )
endif()

set(
  SHARDMESH_PACKAGE_MAINTAINER
  "shardmesh maintainers <maintainers@shardmesh.invalid>"
  CACHE STRING
  "Maintainer of the Debian packages: set your own before you publish them"
)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${SHARDMESH_PACKAGE_MAINTAINER}")
# dpkg-shlibdeps finds the packages of the linked libraries; CPack tells it the programs with `file`.
find_program(SHARDMESH_SHLIBDEPS dpkg-shlibdeps)
find_program(SHARDMESH_FILE file)
if(SHARDMESH_SHLIBDEPS AND SHARDMESH_FILE)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
else()
  message(STATUS "Debian packages would lack dependencies: dpkg-shlibdeps or file was not found (dpkg-dev, file)")
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shardmesh)
set(CPACK_PACKAGE_VENDOR shardmesh)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
