// Corrections around Mesa's software device, preloaded before ggml and Mesa.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan_core.h>

// LLVM takes what a CPU can do from its name, and so uses SVE where a hypervisor hides that: an
// illegal instruction. This names a CPU without SVE.
#ifdef SVE_IS_HIDDEN
struct StringRef {
    const char* data;
    unsigned long length;
};

// llvm::sys::getHostCPUName()
struct StringRef _ZN4llvm3sys14getHostCPUNameEv(void) {
    return (struct StringRef){"neoverse-n1", 11};
}
#endif

// ggml asks without a pause whether the device is done, which takes a core from the device when
// that is this CPU.
VkResult vkGetFenceStatus(VkDevice device, VkFence fence) {
    static PFN_vkGetFenceStatus of_loader;
    if (of_loader == NULL) {
        of_loader = (PFN_vkGetFenceStatus)dlsym(RTLD_NEXT, "vkGetFenceStatus");
    }
    const VkResult status = of_loader(device, fence);
    if (status == VK_NOT_READY) {
        usleep(200);
    }
    return status;
}

// The least shared memory that Vulkan allows. With it ggml multiplies in tiles of up to 64x64, as
// it does on many GPUs anyway; Mesa compiles each shader for larger ones for half a minute or more.
#ifdef LEAST_SHARED_MEMORY
void vkGetPhysicalDeviceProperties2(VkPhysicalDevice device,
                                    VkPhysicalDeviceProperties2* properties) {
    static PFN_vkGetPhysicalDeviceProperties2 of_loader;
    if (of_loader == NULL) {
        of_loader =
            (PFN_vkGetPhysicalDeviceProperties2)dlsym(RTLD_NEXT, "vkGetPhysicalDeviceProperties2");
    }
    of_loader(device, properties);
    properties->properties.limits.maxComputeSharedMemorySize = 16384;
}
#endif

// Mesa makes coroutines of shaders with barriers, of functions with up to 23,000 blocks. LLVM takes
// a time for that which grows with the square of their number: it first removes those that can be
// merged with others, which leaves a third to two thirds.
typedef void* (*RunPasses)(void* module, const char* passes, void* machine, void* options);

static int find_llvm(struct dl_phdr_info* info, size_t size, void* path) {
    (void)size;
    if (strstr(info->dlpi_name, "/libLLVM") == NULL) {
        return 0;
    }
    *(const char**)path = info->dlpi_name;
    return 1;
}

void* LLVMRunPasses(void* module, const char* passes, void* machine, void* options) {
    static RunPasses of_llvm;
    if (of_llvm == NULL) {
        const char* path = NULL;
        dl_iterate_phdr(find_llvm, &path);
        of_llvm = (RunPasses)dlsym(dlopen(path, RTLD_LAZY | RTLD_NOLOAD), "LLVMRunPasses");
    }
    if (strcmp(passes, "default<O0>") == 0) {
        void* error = of_llvm(module, "function(simplifycfg)", machine, options);
        if (error != NULL) {
            return error;
        }
    }
    return of_llvm(module, passes, machine, options);
}
