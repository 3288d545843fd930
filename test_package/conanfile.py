# SPDX-License-Identifier: Apache-2.0
# Proves a created package: a program that imports the modules builds and runs.
from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.gnu import PkgConfigDeps
import os


class ShardmeshTestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.28 <5]")
        self.tool_requires("ninja/[>=1.11 <2]")

    def layout(self):
        cmake_layout(self, generator="Ninja")

    def generate(self):
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()  # it follows what components require
        facts = self.dependencies["shardmesh"].cpp_info.components["transfer"]
        assert facts.libs == ["shardmesh_transfer"] and {"comm", "kernels"} <= set(facts.requires), facts.requires
        toolchain = CMakeToolchain(self, generator="Ninja")
        toolchain.user_presets_path = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "consumer"), env="conanrun")
