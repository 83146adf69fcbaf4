# Short names for the usual CMake commands. `make` builds; `make test` and `make demo` work on a fresh machine.
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
CMAKE_ARGS ?=
PREFIX ?= /usr/local
# Looked up for each command: setup may have installed it. A build folder keeps the generator it has.
export CMAKE_GENERATOR = $(shell command -v ninja > /dev/null && echo Ninja || echo Unix Makefiles)

.PHONY: all setup test demo cuda cuda-check metal vulkan hip sycl asan fuzz bench quality release-check format check install clean

all: setup
	@mkdir -p build
	@cmake --preset release $(CMAKE_ARGS) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	cmake --build build -j $(JOBS)

# Installs what is missing; silent when nothing is. FLUX2_SKIP_SETUP=1 installs nothing.
setup:
	@scripts/setup.sh

test: all
	ctest --test-dir build --output-on-failure -j $(JOBS)

demo: all
	scripts/demo.sh

cuda: setup
	cmake --preset cuda $(CMAKE_ARGS)
	cmake --build build-cuda -j $(JOBS)

# Compiles our kernels for every supported architecture, without a GPU.
cuda-check:
	scripts/cuda_check.sh

# hip needs ROCm (CMAKE_ARGS=-DGPU_TARGETS=gfx1100 for one kind of GPU), sycl oneAPI and its environment (setvars.sh).
sycl: COMPILERS = -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx
metal hip sycl: setup
	cmake -B build-$@ -DFLUX2_$(shell echo $@ | tr a-z A-Z)=ON $(COMPILERS) $(CMAKE_ARGS)
	cmake --build build-$@ -j $(JOBS)

vulkan: setup
	scripts/setup.sh vulkan
	cmake -B build-vulkan -DFLUX2_VULKAN=ON $(CMAKE_ARGS)
	cmake --build build-vulkan -j $(JOBS)

# The tests with the address and undefined-behaviour sanitizers, except whole runs. Clang compiles with them faster than GCC
# (4.8 instead of 6.7 minutes on two Arm cores), and is the second compiler that builds everything. The search for leaks takes seconds at the end
# of every process: it is off where our programs run, and the other tests are a few processes instead of one per file. Freed memory is
# kept back until there are 16 MB of it instead of 256, which saves an eighth of the time of tests of networks; of the callers of an
# allocation six are kept instead of thirty.
ASAN_LIMITS = quarantine_size_mb=16:malloc_context_size=6
ASAN_TESTS = env OMP_WAIT_POLICY=passive build-asan/bin/flux2-tests
NOT_ALONE = */programs/*,*/whole_runs/*,*/text/test_qwen3_tokenizer.cpp
asan:
	scripts/setup.sh developer
	cmake --preset asan $(CMAKE_ARGS)
	cmake --build build-asan -j $(JOBS)
	ASAN_OPTIONS=detect_leaks=0:$(ASAN_LIMITS) ctest --test-dir build-asan --output-on-failure -j $(JOBS) -L programs
	printf '%s\n' '$(ASAN_TESTS) --source-file-exclude=*/convert/*,*/models/*,*/pipeline/*,$(NOT_ALONE)' \
		'$(ASAN_TESTS) --source-file=*/convert/*,*/models/*' \
		'env OMP_WAIT_POLICY=passive build-asan/bin/flux2-server-tests' \
		'env OMP_WAIT_POLICY=passive build-asan/bin/flux2-picture-tests --source-file=*/pipeline/*' \
		'env ASAN_OPTIONS=detect_leaks=0:$(ASAN_LIMITS) build-asan/bin/flux2-downloads-tests' \
		'ctest --test-dir build-asan --output-on-failure -R ^c_header$$' \
		| ASAN_OPTIONS=$(ASAN_LIMITS) xargs -P 3 -I{} sh -fc '{}'

# In the sanitizers' build, most of which it shares.
fuzz:
	scripts/setup.sh developer
	cmake --preset asan $(CMAKE_ARGS)
	cmake --build build-asan -j $(JOBS) --target fuzz_safetensors fuzz_gguf fuzz_image fuzz_adapter fuzz_http
	tests/fuzz/run.sh $(or $(SECONDS_EACH),30)

bench: all
	cmake --build build -j $(JOBS) --target bench_quantize
	build/bin/bench_quantize
	scripts/bench_convert.sh

# The table "Quality by type" of docs/numerics.md; the pictures stay in build/quality.
quality: all
	cmake --build build -j $(JOBS) --target flux2-quality
	build/bin/flux2-quality build/quality

# Checks that take too long for .ci/run: the tests with ggml for common CPUs instead of this one (no AMX, no AVX-512), old CPUs
# of this architecture under emulation, all recordings on Vulkan's software device, the shared library, minutes of fuzzing.
release-check: all
	cmake --preset release -B build-common -DGGML_NATIVE=OFF $(CMAKE_ARGS)
	cmake --build build-common -j $(JOBS)
	FLUX2_NO_AMX=1 ctest --test-dir build-common --output-on-failure -j $(JOBS)
	tests/cross/run.sh build $(shell uname -m)
	tests/vulkan/run.sh build all
	tests/install/run.sh build shared
	$(MAKE) fuzz SECONDS_EACH=300

format:
	scripts/setup.sh developer
	git ls-files '*.cpp' '*.hpp' '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

# Formatting and layers, without building anything.
check:
	scripts/setup.sh developer
	git ls-files '*.cpp' '*.hpp' '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror
	.ci/layers.sh

install: all
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-*
