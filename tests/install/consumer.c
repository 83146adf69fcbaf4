#include <flux2/flux2.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    const char* const* name = flux2_devices();
    while (name != NULL && *name != NULL && strcmp(*name, "CPU") != 0) {
        ++name;
    }
    printf("%s\n", flux2_version());
    return name != NULL && *name != NULL ? 0 : 1;
}
