// Preloaded into a program on Linux: interrupts it (SIGINT) at its first allocation of as many
// bytes as INTERRUPT_AT_ALLOCATION says.
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#ifdef __GLIBC__
extern void* __libc_malloc(size_t size);

static size_t awaited;  // 0: nothing

__attribute__((constructor)) static void begin(void) {
    const char* bytes = getenv("INTERRUPT_AT_ALLOCATION");
    awaited = bytes == NULL ? 0 : (size_t)strtoul(bytes, NULL, 10);
}

void* malloc(size_t size) {
    if (awaited != 0 && size == awaited) {
        awaited = 0;
        raise(SIGINT);
    }
    return __libc_malloc(size);
}
#endif
