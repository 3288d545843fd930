# SPDX-License-Identifier: Apache-2.0
# The Conan recipe. Consumers use the project's own CMake config (find_package(shardmesh CONFIG)): module interfaces
# are installed as sources and compiled by the consumer, which generated config files cannot describe.
from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
import os
import re

required_conan_version = ">=2.20"


class ShardmeshConan(ConanFile):
    name = "shardmesh"
    license = "Apache-2.0"
    description = "Sharded tensors, state dicts and checkpoints over device meshes, as C++20 modules"
    topics = ("tensor", "checkpoint", "pytorch", "safetensors", "modules")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"tools": [True, False], "with_mpi": [True, False]}
    default_options = {"tools": False, "with_mpi": False}
    exports_sources = "CMakeLists.txt", "cmake/*", "include/*", "modules/*", "tools/*", "LICENSE"
    # The interfaces are rebuilt in the consumer's dialect; the archive was built in the package's.
    extension_properties = {"compatibility_cppstd": False}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "CMakeLists.txt"))
        self.version = re.search(r"project\(shardmesh VERSION ([0-9.]+)", text).group(1)

    def requirements(self):
        # Private to the library's bodies; all but range-v3 are found again by shardmeshConfig.cmake for linking.
        self.requires("fmt/[>=9 <13]")
        self.requires("range-v3/[>=0.12 <1]", visible=False)  # headers alone
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("simdjson/[>=3 <5]")
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("zstd/[>=1.5 <2]")
        self.requires("openssl/[>=3 <4]")
        self.requires("xxhash/[>=0.8 <1]")
        self.requires("libdeflate/[>=1.14 <2]")
        self.requires("re2/[>=20220601]")
        if self.options.with_mpi:  # the component mpi; the C library only
            self.requires("openmpi/[>=4.1 <6]")
        if self.options.tools:
            self.requires("cli11/[>=2.1 <3]")

    def validate(self):
        check_min_cppstd(self, 20)
        if str(self.settings.compiler) == "gcc":
            raise ConanInvalidConfiguration("GCC 15 and 16 crash on these modules: use Clang 19 to 21, or 23 and newer")

    def layout(self):
        cmake_layout(self, generator="Ninja")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self, generator="Ninja")  # Makefiles cannot scan modules
        toolchain.user_presets_path = False
        toolchain.cache_variables["SHARDMESH_BUILD_TESTS"] = False
        toolchain.cache_variables["SHARDMESH_BUILD_BENCHMARKS"] = False
        toolchain.cache_variables["SHARDMESH_BUILD_TOOLS"] = bool(self.options.tools)
        toolchain.cache_variables["SHARDMESH_WITH_KOKKOS"] = "OFF"  # there is no recipe that every remote has
        toolchain.cache_variables["SHARDMESH_WITH_C_API"] = False  # a shared library beside static ones
        toolchain.cache_variables["SHARDMESH_WITH_TORCH"] = "OFF"  # nor of LibTorch
        toolchain.cache_variables["SHARDMESH_WITH_MPI"] = "ON" if self.options.with_mpi else "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        built = self.conf.get("user.shardmesh:built")  # `conan export-pkg` of a tree that CMake built already
        if built:
            self.run(f'cmake --install "{built}" --prefix "{self.package_folder}"')
        else:
            CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/shardmesh"]
