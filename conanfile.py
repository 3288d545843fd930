# SPDX-License-Identifier: Apache-2.0
# The Conan recipe. Consumers use the project's own CMake config (find_package(shardmesh CONFIG)): module interfaces
# are installed as sources and compiled by the consumer, which generated config files cannot describe. docs/packaging.md
# compares the recipe with ConanCenter's rules.
from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, load, rmdir
from conan.tools.scm import Version
import json
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
    # One for each optional component of the CMake package. Building nccl needs no library (nor does cuda, which it
    # imports). cuda_kernels needs nvcc; its shared library serves every program that uses cuda.
    options = {"tools": [True, False], "mpi": [True, False], "kokkos": [True, False], "nccl": [True, False],
               "torch": [True, False], "cuda_kernels": [True, False], "remote": [True, False]}
    default_options = {"tools": False, "mpi": False, "kokkos": False, "nccl": True, "torch": False,
                       "cuda_kernels": False, "remote": False}
    # The interfaces are rebuilt in the consumer's dialect; the archive was built in the package's.
    extension_properties = {"compatibility_cppstd": False}

    @property
    def _release(self):
        """The address and checksum of the sources, if conandata.yml beside the recipe has them, as in ConanCenter."""
        return (self.conan_data or {}).get("sources", {}).get(self.version)

    @property
    def _compilers_minimum_version(self):
        return {"clang": "19"}

    def set_version(self):
        if self.version:
            return
        text = load(self, os.path.join(self.recipe_folder, "CMakeLists.txt"))
        self.version = re.search(r"project\(shardmesh VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        if not self._release:  # the recipe is in the source tree
            for pattern in ("CMakeLists.txt", "cmake/*", "cuda_kernels/*", "include/*", "modules/*", "tools/*",
                            "LICENSE"):
                copy(self, pattern, self.recipe_folder, self.export_sources_folder)

    def layout(self):
        cmake_layout(self, generator="Ninja", src_folder="src" if self._release else ".")

    def requirements(self):
        # Private to the library's bodies. Consumers link them, except those of which only headers are used.
        self.requires("fmt/[>=9 <13]")
        self.requires("range-v3/[>=0.12 <1]", visible=False)
        self.requires("nlohmann_json/[>=3.11 <4]", visible=False)
        self.requires("tomlplusplus/[>=3.3 <4]", visible=False)
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("zstd/[>=1.5 <2]")
        self.requires("openssl/[>=3 <4]")
        self.requires("xxhash/[>=0.8 <1]")
        self.requires("isa-l/[>=2.30 <3]")
        self.requires("re2/[>=20220601]")
        if self.options.mpi:  # the C library only
            self.requires("openmpi/[>=4.1 <6]")
        if self.options.remote:
            self.requires("libcurl/[>=7.88 <9]")
            self.requires("pugixml/[>=1.11 <2]")
        if self.options.tools:
            self.requires("cli11/[>=2.1 <3]", visible=False)
            self.requires("simdjson/[>=3 <5]", visible=False)
        # Not every remote has recipes of Kokkos and LibTorch in the required versions. CMake finds the machine's
        # (Kokkos_ROOT, Torch_ROOT), here and in consumers.

    def validate(self):
        compiler, version = str(self.settings.compiler), str(self.settings.compiler.version)
        minimum = self._compilers_minimum_version.get(compiler)
        if not minimum or Version(version) < minimum:
            raise ConanInvalidConfiguration(
                f"shardmesh is C++ modules and needs Clang 19 or newer and Ninja: the compiler is {compiler} {version}")
        check_min_cppstd(self, 20)
        if self.options.cuda_kernels and not self.options.nccl:
            raise ConanInvalidConfiguration("cuda_kernels=True needs nccl=True: its component cuda loads the kernels")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.28 <5]")
        self.tool_requires("ninja/[>=1.11 <2]")

    def source(self):
        if self._release:
            get(self, **self._release, strip_root=True)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self, generator="Ninja")  # Makefiles cannot scan modules
        toolchain.user_presets_path = False
        toolchain.cache_variables["SHARDMESH_BUILD_TESTS"] = False
        toolchain.cache_variables["SHARDMESH_BUILD_BENCHMARKS"] = False
        toolchain.cache_variables["SHARDMESH_BUILD_TOOLS"] = bool(self.options.tools)
        for component in ("mpi", "kokkos", "nccl", "torch", "cuda_kernels", "remote"):
            toolchain.cache_variables[f"SHARDMESH_WITH_{component.upper()}"] = "ON" if self.options.get_safe(component) else "OFF"
        toolchain.cache_variables["SHARDMESH_WITH_PYTHON"] = "OFF"
        toolchain.cache_variables["SHARDMESH_WITH_C_API"] = False  # a shared library beside static ones
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
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))  # PkgConfigDeps writes them

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        # For generators other than CMake's: the components of the CMake package, as recorded by the build.
        recipes = {"nlohmann-json": "nlohmann_json", "mpi": "openmpi", "curl": "libcurl"}
        listed = json.loads(load(self, os.path.join(self.package_folder, "share", "shardmesh", "components.json")))
        direct = {dependency.ref.name for _, dependency in self.dependencies.host.items()}
        if "cuda_kernels" in listed:  # programs are not beside the library
            kernels = os.path.join(self.package_folder, "lib", "libshardmesh_cuda_kernels.so")
            self.runenv_info.define_path("SHARDMESH_CUDA_KERNELS", kernels)
        for name, facts in listed.items():
            component = self.cpp_info.components[name]
            component.builddirs = ["lib/cmake/shardmesh"]
            component.libs = [facts["library"]]
            needs = [recipes.get(need, need) for need in facts["needs"]]
            component.requires = facts["imports"] + [f"{need}::{need}" for need in needs if need in direct]
            if "threads" in facts["needs"]:
                component.system_libs = ["pthread"]
