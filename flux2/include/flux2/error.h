// Errors from C: status codes, messages and exit codes.
#pragma once

#include <flux2/export.h>

#include <stdint.h>

// Enums are 32 bits wide; in C++ they may hold values that only a newer header names.
#ifdef __cplusplus
#define FLUX2_ENUM_TYPE : int32_t
extern "C" {
#else
#define FLUX2_ENUM_TYPE
#endif

typedef enum flux2_status FLUX2_ENUM_TYPE {
    FLUX2_OK = 0,
    FLUX2_BAD_ARGUMENT = 1,   // a null pointer, an option or a value that cannot work
    FLUX2_BAD_FILE = 2,       // missing, unreadable, broken, or not fitting the others
    FLUX2_UNSUPPORTED = 3,    // a valid file or feature this version does not handle
    FLUX2_OUT_OF_MEMORY = 4,  // host or device memory
    FLUX2_OUT_OF_DISK = 5,    // no room for an output
    FLUX2_BACKEND = 6,        // a device failed, or what was computed is not finite
    FLUX2_CANCELLED = 7,      // the progress callback or the cancel token asked to stop
    FLUX2_INTERNAL = 8        // a bug of ours
} flux2_status;

// The message of the last failed call on this thread; empty when none failed. Valid until the
// thread's next failure.
FLUX2_API const char* flux2_last_error(void);

// The exit code of a program that ends with this status: 0, 2 for arguments, 3 for files, 4 for
// memory or disk, 5 for a device, 130 when cancelled, else 1.
FLUX2_API int flux2_exit_code(flux2_status status);

// Messages name what a caller can set by its field or parameter here, in backquotes: "use a smaller
// `type`". This tells what a program calls it instead; null: nothing else.
typedef const char* (*flux2_wording)(const char* setting, void* user_data);

// A text of the library, be it the last error, a line of the log or of flux2_file_info, with its
// settings in the program's words. On failure *result is null. Free it with flux2_text_free.
FLUX2_API flux2_status flux2_worded(const char* text, flux2_wording wording, void* user_data,
                                    char** result);
FLUX2_API void flux2_text_free(char* text);

#ifdef __cplusplus
}
#endif
