// Two corrections to Debian 12's software device (Mesa 22.3 over LLVM 15) on Arm, preloaded before
// it.
#include <dlfcn.h>

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

// Mesa extends F16 values to F32 while their type is still that of 16-bit integers, which LLVM
// cannot compile. This makes them F16 first. The functions are LLVM's C interface, whose headers
// need not be installed.
enum { kIntegerKind = 8, kVectorKind = 13 };
typedef void* Ref;

static void* llvm(const char* function) {
    return dlsym(dlopen("libLLVM-15.so.1", RTLD_LAZY), function);
}

static Ref half_type_like(Ref type) {
    int (*kind)(Ref) = llvm("LLVMGetTypeKind");
    Ref (*element)(Ref) = llvm("LLVMGetElementType");
    Ref (*context)(Ref) = llvm("LLVMGetTypeContext");
    Ref (*half)(Ref) = llvm("LLVMHalfTypeInContext");
    Ref (*vector)(Ref, unsigned) = llvm("LLVMVectorType");
    unsigned (*size)(Ref) = llvm("LLVMGetVectorSize");
    if (kind(type) == kIntegerKind) {
        return half(context(type));
    }
    const int is_integers = kind(type) == kVectorKind && kind(element(type)) == kIntegerKind;
    return is_integers ? vector(half(context(type)), size(type)) : type;
}

Ref LLVMBuildFPExt(Ref builder, Ref value, Ref result_type, const char* name) {
    Ref (*extend)(Ref, Ref, Ref, const char*) = llvm("LLVMBuildFPExt");
    Ref (*type_of)(Ref) = llvm("LLVMTypeOf");
    Ref (*cast)(Ref, Ref, Ref, const char*) = llvm("LLVMBuildBitCast");
    Ref half = half_type_like(type_of(value));
    return extend(builder, cast(builder, value, half, ""), result_type, name);
}
