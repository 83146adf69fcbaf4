// Two corrections around Mesa's software device, preloaded before ggml and Mesa.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

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
enum { kNotReady = 1 };  // VK_NOT_READY

int vkGetFenceStatus(void* device, void* fence) {
    static int (*of_loader)(void*, void*);
    if (of_loader == NULL) {
        of_loader = (int (*)(void*, void*))dlsym(RTLD_NEXT, "vkGetFenceStatus");
    }
    const int status = of_loader(device, fence);
    if (status == kNotReady) {
        usleep(200);
    }
    return status;
}
